//! Sockets of addresses: `host:port` or `unix:path`, with TLS or without.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// What HTTP/2 runs over.
pub trait Io: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Io for T {}

/// A connected socket.
pub type Socket = Pin<Box<dyn Io>>;

/// Connect, and greet with TLS where there is a config of it.
///
/// # Errors
/// Nobody listens, or TLS does not come about.
pub async fn connect(address: &str, tls: Option<Arc<ClientConfig>>) -> io::Result<Socket> {
    let (plain, name): (Socket, &str) = if let Some(path) = address.strip_prefix("unix:") {
        (connect_path(path).await?, "localhost")
    } else {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        (Box::pin(stream), host.trim_start_matches('[').trim_end_matches(']'))
    };
    let Some(config) = tls else { return Ok(plain) };
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    Ok(Box::pin(TlsConnector::from(config).connect(name, plain).await?))
}

#[cfg(unix)]
async fn connect_path(path: &str) -> io::Result<Socket> {
    Ok(Box::pin(UnixStream::connect(path).await?))
}

#[cfg(not(unix))]
async fn connect_path(path: &str) -> io::Result<Socket> {
    Err(no_paths(path))
}

#[cfg(not(unix))]
fn no_paths(path: &str) -> io::Error {
    let text = format!("this system has no sockets at paths, got 'unix:{path}'; use host:port");
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// Greet a connection that was accepted.
///
/// # Errors
/// The other side does not speak TLS, or shows no certificate where one is asked for.
pub async fn greet(plain: Socket, tls: Option<Arc<ServerConfig>>) -> io::Result<Socket> {
    match tls {
        None => Ok(plain),
        Some(config) => Ok(Box::pin(TlsAcceptor::from(config).accept(plain).await?)),
    }
}

/// A socket that listens.
pub enum Listener {
    /// Of `host:port`.
    Tcp(TcpListener),
    /// Of `unix:path`.
    #[cfg(unix)]
    Unix(UnixListener),
}

impl Listener {
    /// Bind an address, and return the port: 0 for a path.
    ///
    /// # Errors
    /// It is taken, none of this machine's, or no address.
    pub async fn bind(address: &str) -> io::Result<(Self, u16)> {
        if let Some(path) = address.strip_prefix("unix:") {
            #[cfg(unix)]
            return Ok((Self::Unix(UnixListener::bind(path)?), 0));
            #[cfg(not(unix))]
            return Err(no_paths(path));
        }
        let listener = TcpListener::bind(address).await?;
        let port = listener.local_addr().as_ref().map_or(0, SocketAddr::port);
        Ok((Self::Tcp(listener), port))
    }

    /// Return the next connection.
    ///
    /// # Errors
    /// The system has no more files for it.
    pub async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Box::pin(stream))
            }
            #[cfg(unix)]
            Self::Unix(listener) => Ok(Box::pin(listener.accept().await?.0)),
        }
    }
}
