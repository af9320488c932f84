//! TLS from files in PEM: who is trusted, and what is shown.

use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    ServerConfig, SignatureScheme,
};

/// Contents of the files; none is ever part of a message.
#[derive(Default)]
pub struct Files {
    /// Certificates that the other side's must be signed by, or be one of.
    pub ca: Option<Vec<u8>>,
    /// One's own certificates, the first of which is shown with what signed it.
    pub cert: Option<Vec<u8>>,
    /// The private key.
    pub key: Option<Vec<u8>>,
}

type Result<T> = std::result::Result<T, String>;

impl Files {
    /// Return how a learner connects; `None` without a CA.
    ///
    /// # Errors
    /// The contents are not what they should be; the text says which.
    pub fn client(&self) -> Result<Option<Arc<ClientConfig>>> {
        let own = self.own()?;
        let Some(ca) = &self.ca else { return Ok(None) };
        let trusted = Trusted::read(ca)?;
        let webpki = WebPkiServerVerifier::builder_with_provider(trusted.roots()?, provider())
            .build()
            .map_err(|error| format!("tls_ca holds no certificates to trust: {error}"))?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous() // what follows trusts less than the system's list, and no more than webpki
            .with_custom_certificate_verifier(Arc::new(Servers { webpki, trusted }));
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                builder.with_client_auth_cert(chain, key).map_err(|error| unfit(&error))?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Some(Arc::new(config)))
    }

    /// Return how a worker serves; `None` without a certificate.
    ///
    /// # Errors
    /// As of [`Files::client`].
    pub fn server(&self) -> Result<Option<Arc<ServerConfig>>> {
        let Some((chain, key)) = self.own()? else {
            return match self.ca {
                None => Ok(None),
                Some(_) => {
                    Err("tls_ca asks learners for certificates, so the worker needs its own: \
                                give tls_cert and tls_key too"
                        .into())
                }
            };
        };
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match &self.ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let trusted = Trusted::read(ca)?;
                let webpki =
                    WebPkiClientVerifier::builder_with_provider(trusted.roots()?, provider())
                        .build()
                        .map_err(|error| {
                            format!("tls_ca holds no certificates to trust: {error}")
                        })?;
                builder.with_client_cert_verifier(Arc::new(Clients { webpki, trusted }))
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| unfit(&error))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Some(Arc::new(config)))
    }

    fn own(&self) -> Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>> {
        let (cert, key) = match (&self.cert, &self.key) {
            (None, None) => return Ok(None),
            (Some(cert), Some(key)) => (cert, key),
            _ => return Err("tls_cert and tls_key belong together; give both, or neither".into()),
        };
        let chain = certificates(cert, "tls_cert")?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| "tls_key must hold a private key in PEM, not encrypted".to_owned())?;
        Ok(Some((chain, key)))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn unfit(error: &Error) -> String {
    format!("tls_cert and tls_key do not fit each other: {error}")
}

fn certificates(pem: &[u8], name: &str) -> Result<Vec<CertificateDer<'static>>> {
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(format!("{name} must hold certificates in PEM")),
    }
}

/// The certificates of a CA's file.
#[derive(Debug)]
struct Trusted(Vec<CertificateDer<'static>>);

impl Trusted {
    fn read(pem: &[u8]) -> Result<Self> {
        certificates(pem, "tls_ca").map(Self)
    }

    fn roots(&self) -> Result<Arc<RootCertStore>> {
        let mut roots = RootCertStore::empty();
        for each in &self.0 {
            roots.add(each.clone()).map_err(|error| format!("tls_ca cannot be read: {error}"))?;
        }
        Ok(Arc::new(roots))
    }

    /// Whether a certificate was refused only for being a CA's, and is itself trusted.
    ///
    /// `openssl req -x509` makes such ones, which sign themselves. webpki looks at the dates first.
    fn has(&self, shown: &CertificateDer<'_>, error: &Error) -> bool {
        matches!(error, Error::InvalidCertificate(CertificateError::Other(other))
            if other.0.to_string() == "CaUsedAsEndEntity")
            && self.0.iter().any(|each| each == shown)
    }
}

/// Leave the signatures of a handshake to webpki, on either side.
macro_rules! signatures_by_webpki {
    () => {
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
    };
}

#[derive(Debug)]
struct Servers {
    webpki: Arc<WebPkiServerVerifier>,
    trusted: Trusted,
}

impl ServerCertVerifier for Servers {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, Error> {
        match self.webpki.verify_server_cert(shown, between, name, stapled, now) {
            Err(error) if self.trusted.has(shown, &error) => {
                verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    signatures_by_webpki!();
}

#[derive(Debug)]
struct Clients {
    webpki: Arc<dyn ClientCertVerifier>,
    trusted: Trusted,
}

impl ClientCertVerifier for Clients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.webpki.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> std::result::Result<ClientCertVerified, Error> {
        match self.webpki.verify_client_cert(shown, between, now) {
            Err(error) if self.trusted.has(shown, &error) => Ok(ClientCertVerified::assertion()),
            other => other,
        }
    }

    signatures_by_webpki!();
}
