//! Sockets of addresses: `host:port` or `unix:path`.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};
use tonic::transport::server::Connected;

/// Transport of HTTP/2.
pub trait Io: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Io for T {}

/// A connected socket.
pub type Socket = Pin<Box<dyn Io>>;

#[cfg(not(unix))]
fn no_paths<T>(path: &str) -> io::Result<T> {
    let text = format!("this system has no sockets at paths, got 'unix:{path}'; use host:port");
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

/// Connect.
///
/// # Errors
/// Nothing listens there.
pub async fn connect(address: &str) -> io::Result<Socket> {
    if let Some(path) = address.strip_prefix("unix:") {
        #[cfg(unix)]
        return Ok(Box::pin(UnixStream::connect(path).await?));
        #[cfg(not(unix))]
        return no_paths(path);
    }
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(Box::pin(stream))
}

/// A listening socket.
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
    /// It is taken, not of this machine, or not an address.
    pub async fn bind(address: &str) -> io::Result<(Self, u16)> {
        if let Some(path) = address.strip_prefix("unix:") {
            #[cfg(unix)]
            return Ok((Self::Unix(UnixListener::bind(path)?), 0));
            #[cfg(not(unix))]
            return no_paths(path);
        }
        let listener = TcpListener::bind(address).await?;
        let port = listener.local_addr()?.port();
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

/// A socket that breaks once a future is ready.
pub struct Closable<P = ()> {
    socket: Socket,
    peer: P,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl<P> Closable<P> {
    /// Break a socket once `end` is ready; requests on it know the peer.
    pub fn new(socket: Socket, peer: P, end: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { socket, peer, end: Box::pin(end) }
    }
}

impl<P: Clone + Send + Sync + 'static> Connected for Closable<P> {
    type ConnectInfo = P;

    fn connect_info(&self) -> P {
        self.peer.clone()
    }
}

impl<P: Unpin> AsyncRead for Closable<P> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // HTTP/2 always has a read pending
        if self.end.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        self.socket.as_mut().poll_read(context, buffer)
    }
}

impl<P: Unpin> AsyncWrite for Closable<P> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.socket.as_mut().poll_write(context, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.socket.as_mut().poll_write_vectored(context, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.as_mut().poll_shutdown(context)
    }
}
