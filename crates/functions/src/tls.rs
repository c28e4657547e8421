//! The way between functions and the proxy: TLS 1.3 with a raw public key (RFC 7250), or plain.
//!
//! Each start of the proxy draws a key pair. The public key travels in the event of an invocation, whose way the cloud
//! protects, as the token does. So a function knows that it talks to the proxy that invoked it before it says anything, and no
//! authority has to sign a certificate. The proxy knows the function by its token.

use std::fmt;

use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};

/// Both directions of a connection.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> Duplex for T {}

/// A connection, encrypted or not.
pub(crate) type Stream = Box<dyn Duplex>;
/// Its receiving half.
pub(crate) type Receiving = ReadHalf<Stream>;
/// Its sending half.
pub(crate) type Sending = WriteHalf<Stream>;

#[cfg(feature = "proxy")]
pub(crate) use proxy::Identity;

#[cfg(feature = "program")]
pub(crate) use program::secure;

#[cfg(feature = "proxy")]
mod proxy {
    use std::io;
    use std::sync::Arc;

    use tokio::net::TcpStream;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio_rustls::rustls::server::AlwaysResolvesServerRawPublicKeys;
    use tokio_rustls::rustls::sign::CertifiedKey;
    use tokio_rustls::rustls::version::TLS13;

    use super::Stream;

    /// The bytes before the seed of an Ed25519 key in PKCS #8 (RFC 8410, 7).
    const KEY_PREFIX: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

    /// The proxy's key pair.
    #[derive(Debug)]
    pub(crate) struct Identity {
        acceptor: Arc<ServerConfig>,
        key: String,
    }

    impl Identity {
        /// Draws a new one. `None`: the system has no random numbers.
        pub(crate) fn draw() -> Option<Self> {
            let mut seed = [0; 32];
            getrandom::fill(&mut seed).ok()?;
            let provider = ring::default_provider();
            let private = PrivateKeyDer::Pkcs8([&KEY_PREFIX[..], &seed].concat().into());
            let private = provider.key_provider.load_private_key(private).ok()?;
            let public = private.public_key()?.to_vec();
            let key = public.iter().map(|byte| format!("{byte:02x}")).collect();
            let certified = CertifiedKey::new(vec![CertificateDer::from(public)], private);
            let mut acceptor = ServerConfig::builder_with_provider(Arc::new(provider))
                .with_protocol_versions(&[&TLS13])
                .ok()?
                .with_no_client_auth()
                .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::new(certified))));
            // Functions keep no sessions.
            acceptor.send_tls13_tickets = 0;
            Some(Self {
                acceptor: Arc::new(acceptor),
                key,
            })
        }

        /// The public key, in hexadecimal.
        pub(crate) fn key(&self) -> &str {
            &self.key
        }

        /// Takes a connection.
        ///
        /// # Errors
        /// The other side speaks no TLS, or does not want this key.
        pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<Stream> {
            let accepted = TlsAcceptor::from(Arc::clone(&self.acceptor)).accept(stream).await?;
            Ok(Box::new(accepted))
        }
    }
}

#[cfg(feature = "program")]
mod program {
    use std::io;
    use std::sync::Arc;

    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use tokio_rustls::rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key};
    use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
    use tokio_rustls::rustls::version::TLS13;
    use tokio_rustls::rustls::{
        CertificateError, ClientConfig, DigitallySignedStruct, Error, PeerIncompatible, SignatureScheme,
    };

    use super::Stream;

    /// Encrypts a connection to the proxy that has a key (hexadecimal).
    ///
    /// # Errors
    /// The other side speaks no TLS, or has another key.
    pub(crate) async fn secure(stream: TcpStream, key: &str) -> io::Result<Stream> {
        let provider = ring::default_provider();
        let verifier = OneKey {
            key: key.to_owned(),
            algorithms: provider.signature_verification_algorithms,
        };
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.enable_sni = false;
        let name = ServerName::try_from("proxy").map_err(io::Error::other)?;
        let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        Ok(Box::new(connected))
    }

    /// Takes one public key and no other.
    #[derive(Debug)]
    struct OneKey {
        key: String,
        algorithms: WebPkiSupportedAlgorithms,
    }

    impl ServerCertVerifier for OneKey {
        fn verify_server_cert(
            &self,
            end_entity: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            let key: String = end_entity.iter().map(|byte| format!("{byte:02x}")).collect();
            if key == self.key {
                return Ok(ServerCertVerified::assertion());
            }
            Err(CertificateError::ApplicationVerificationFailure.into())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(PeerIncompatible::Tls12NotOfferedOrEnabled.into())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let key = SubjectPublicKeyInfoDer::from(cert.as_ref());
            verify_tls13_signature_with_raw_key(message, &key, dss, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.algorithms.supported_schemes()
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Both ends of a new connection.
    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connected, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (connected.unwrap(), accepted.unwrap().0)
    }

    #[tokio::test]
    async fn a_function_talks_to_the_proxy_of_its_event_only() {
        let (identity, other) = (Identity::draw().unwrap(), Identity::draw().unwrap());
        assert_ne!(identity.key(), other.key());
        let (connected, accepted) = pair().await;
        let (there, here) = tokio::join!(secure(connected, identity.key()), identity.accept(accepted));
        let (mut there, mut here) = (there.unwrap(), here.unwrap());
        there.write_all(b"hello").await.unwrap();
        there.shutdown().await.unwrap();
        let mut heard = Vec::new();
        here.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"hello");
        for key in [other.key(), "", "00"] {
            let (connected, accepted) = pair().await;
            let (there, here) = tokio::join!(secure(connected, key), identity.accept(accepted));
            assert!(there.is_err() && here.is_err(), "{key:?}");
        }
    }

    #[tokio::test]
    async fn who_speaks_no_tls_is_refused() {
        let identity = Identity::draw().unwrap();
        let (mut connected, accepted) = pair().await;
        connected.write_all(&[0; 64]).await.unwrap();
        assert!(identity.accept(accepted).await.is_err());
        let (connected, mut accepted) = pair().await;
        accepted.write_all(&[0; 64]).await.unwrap();
        assert!(secure(connected, identity.key()).await.is_err());
    }

    #[tokio::test]
    async fn what_is_said_is_not_to_be_read_on_the_way() {
        let identity = Identity::draw().unwrap();
        let ((connected, mut relay_in), (mut relay_out, accepted)) = (pair().await, pair().await);
        let relay = tokio::spawn(async move {
            let mut seen = Vec::new();
            let (mut from, mut to) = relay_in.split();
            let (mut back, mut forth) = relay_out.split();
            let there = async {
                let mut buffer = [0; 4096];
                loop {
                    let bytes = from.read(&mut buffer).await.unwrap();
                    if bytes == 0 {
                        return forth.shutdown().await.unwrap();
                    }
                    seen.extend_from_slice(&buffer[..bytes]);
                    forth.write_all(&buffer[..bytes]).await.unwrap();
                }
            };
            let _ = tokio::join!(there, tokio::io::copy(&mut back, &mut to));
            seen
        });
        let (there, here) = tokio::join!(secure(connected, identity.key()), identity.accept(accepted));
        let (mut there, mut here) = (there.unwrap(), here.unwrap());
        let secret = [0x5a; 1000];
        there.write_all(&secret).await.unwrap();
        there.shutdown().await.unwrap();
        let mut heard = Vec::new();
        here.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, secret);
        drop((there, here));
        let seen = relay.await.unwrap();
        assert!(seen.len() > secret.len() && !seen.windows(8).any(|eight| eight == [0x5a; 8]));
    }
}
