//! TLS from PEM files: trusted certificates and own ones.

use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

/// Longest time of the TLS handshake.
const GREETING: Duration = Duration::from_secs(10);

/// Contents of the files, which never appear in messages.
#[derive(Default)]
pub struct Files {
    /// Certificates that must have signed the other side's; a worker's may be one of them.
    pub ca: Option<Vec<u8>>,
    /// The own certificate, followed by those that signed it.
    pub cert: Option<Vec<u8>>,
    /// The private key.
    pub key: Option<Vec<u8>>,
}

/// TLS settings of a learner and its verifier of workers.
pub type ClientTls = (ClientTlsConfig, Arc<dyn ServerCertVerifier>);

type Result<T> = std::result::Result<T, String>;

impl Files {
    /// Return a learner's TLS settings; `None` without a CA.
    ///
    /// # Errors
    /// The contents are invalid; the text names them.
    pub fn client(&self) -> Result<Option<ClientTls>> {
        let own = self.own()?;
        let Some(ca) = &self.ca else { return Ok(None) };
        let config = ClientTlsConfig::new().timeout(GREETING);
        let config = own.into_iter().fold(config, ClientTlsConfig::identity);
        Ok(Some((config, Arc::new(Workers::new(certificates(ca, "tls_ca")?)?))))
    }

    /// Return a worker's TLS settings; `None` without a certificate.
    ///
    /// # Errors
    /// As for [`Files::client`].
    pub fn server(&self) -> Result<Option<ServerTlsConfig>> {
        let ca = self.ca.as_deref();
        ca.map(|ca| certificates(ca, "tls_ca")).transpose()?;
        match (self.own()?, ca) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err("tls_ca asks learners for certificates, so the worker needs \
                                    its own: give tls_cert and tls_key too"
                .into()),
            (Some(own), ca) => {
                let config = ServerTlsConfig::new().identity(own).timeout(GREETING);
                let ca = ca.map(Certificate::from_pem);
                Ok(Some(ca.into_iter().fold(config, ServerTlsConfig::client_ca_root)))
            }
        }
    }

    fn own(&self) -> Result<Option<Identity>> {
        let (cert, key) = match (&self.cert, &self.key) {
            (None, None) => return Ok(None),
            (Some(cert), Some(key)) => (cert, key),
            _ => return Err("tls_cert and tls_key belong together; give both, or neither".into()),
        };
        let chain = certificates(cert, "tls_cert")?;
        let parsed = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| "tls_key must hold a private key in PEM, not encrypted".to_owned())?;
        CertifiedKey::from_der(chain, parsed, &default_provider())
            .map_err(|error| format!("tls_cert and tls_key do not fit each other: {error}"))?;
        Ok(Some(Identity::from_pem(cert, key)))
    }
}

fn certificates(pem: &[u8], name: &str) -> Result<Vec<CertificateDer<'static>>> {
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(format!("{name} must hold certificates in PEM")),
    }
}

/// Trusts workers with certificates signed by a CA's or equal to one of them.
///
/// webpki alone would refuse the latter as a CA's, but `openssl req -x509` makes such ones.
#[derive(Debug)]
struct Workers {
    webpki: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl Workers {
    fn new(trusted: Vec<CertificateDer<'static>>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for each in &trusted {
            roots.add(each.clone()).map_err(|error| format!("tls_ca cannot be read: {error}"))?;
        }
        let provider = Arc::new(default_provider());
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| format!("tls_ca holds no certificates to trust: {error}"))?;
        Ok(Self { webpki, trusted })
    }
}

impl ServerCertVerifier for Workers {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, Error> {
        match self.webpki.verify_server_cert(shown, between, name, stapled, now) {
            // webpki reports this after checking the dates
            Err(Error::InvalidCertificate(CertificateError::Other(other)))
                if other.0.to_string() == "CaUsedAsEndEntity" && self.trusted.contains(shown) =>
            {
                verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}
