//! Generates the messages and the service of `workers.proto`, without `protoc`.

use tonic_build::manual::{Builder, Method, Service};

const FOLDER: &str = "src/rlox_distributed/protocol";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed={FOLDER}/workers.proto");
    let files = protox::compile(["workers.proto"], [FOLDER])?;
    // messages are passed as bytes: Python reads and writes those without arrays
    for file in &files.file {
        for service in &file.service {
            let mut built = Service::builder().package(file.package()).name(service.name());
            for method in &service.method {
                let method = Method::builder()
                    .name(method.name().to_lowercase())
                    .route_name(method.name())
                    .input_type("bytes::Bytes")
                    .output_type("bytes::Bytes")
                    .codec_path("crate::grpc::BytesCodec");
                built = built.method(method.client_streaming().server_streaming().build());
            }
            Builder::new().compile(&[built.build()]);
        }
    }
    Ok(prost_build::Config::new().bytes(["."]).compile_fds(files)?)
}
