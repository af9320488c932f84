//! Sockets of addresses: `host:port` or `unix:path`, with TLS or without.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
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
        (Box::pin(UnixStream::connect(path).await?), "localhost")
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
    Unix(UnixListener),
}

impl Listener {
    /// Bind an address, and return the port: 0 for a path.
    ///
    /// # Errors
    /// It is taken, none of this machine's, or no address.
    pub async fn bind(address: &str) -> io::Result<(Self, u16)> {
        if let Some(path) = address.strip_prefix("unix:") {
            return Ok((Self::Unix(UnixListener::bind(path)?), 0));
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
            Self::Unix(listener) => Ok(Box::pin(listener.accept().await?.0)),
        }
    }
}
