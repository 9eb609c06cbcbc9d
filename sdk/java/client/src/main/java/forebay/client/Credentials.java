package forebay.client;

import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * Certificates for TLS: of the authority that signs the daemons', and perhaps the client's own. A
 * URI among its names marks a daemon's certificate. Host names are not compared.
 */
final class Credentials {
  private static final String DAEMON = "forebay:daemon";
  private static final int URI_NAME = 6; // of subjectAltName (RFC 5280)

  private final SSLContext context;

  private Credentials(SSLContext context) {
    this.context = context;
  }

  /** Reads PEM files. Both cert and key may be null, together. */
  static Credentials load(Path ca, Path cert, Path key) throws IOException {
    if (ca == null) {
      throw new ForebayException(
          Kind.INVALID,
          "dial",
          String.valueOf(cert),
          "without the authority's certificate the daemon cannot be authenticated",
          "give the file of that, too");
    }
    try {
      KeyStore trusted = KeyStore.getInstance("PKCS12");
      trusted.load(null, null);
      int n = 0;
      for (Certificate c : certificates(ca)) {
        trusted.setCertificateEntry("ca" + n++, c);
      }
      TrustManagerFactory trust =
          TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
      trust.init(trusted);
      KeyManagerFactory own =
          KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
      KeyStore pair = KeyStore.getInstance("PKCS12");
      pair.load(null, null);
      if (cert != null && key != null) {
        Certificate[] chain = certificates(cert).toArray(new Certificate[0]);
        pair.setKeyEntry("own", privateKey(Secrets.readSecret(key)), new char[0], chain);
      }
      own.init(pair, new char[0]);
      SSLContext context = SSLContext.getInstance("TLSv1.3");
      TrustManager daemons = new Daemons((X509ExtendedTrustManager) trust.getTrustManagers()[0]);
      context.init(own.getKeyManagers(), new TrustManager[] {daemons}, null);
      return new Credentials(context);
    } catch (GeneralSecurityException e) {
      throw new ForebayException(
          Kind.INVALID, "dial", ca.toString(), "", String.valueOf(e.getMessage()), "", e);
    }
  }

  private static Collection<? extends Certificate> certificates(Path file)
      throws IOException, CertificateException {
    try (InputStream in = Files.newInputStream(file)) {
      return CertificateFactory.getInstance("X.509").generateCertificates(in);
    }
  }

  private static PrivateKey privateKey(String pem) throws GeneralSecurityException {
    byte[] der = Base64.getMimeDecoder().decode(pem.replaceAll("-----[A-Z ]+-----", ""));
    for (String algorithm : List.of("EC", "RSA", "EdDSA")) {
      try {
        return KeyFactory.getInstance(algorithm).generatePrivate(new PKCS8EncodedKeySpec(der));
      } catch (GeneralSecurityException e) {
        // Another one, then.
      }
    }
    throw new GeneralSecurityException("the key is none of EC, RSA and EdDSA in PKCS #8");
  }

  /** Returns a socket over a connection, on which no byte has been sent. */
  SSLSocket over(Socket socket, String host, int port) throws IOException {
    SSLSocket s = (SSLSocket) context.getSocketFactory().createSocket(socket, host, port, true);
    s.setEnabledProtocols(new String[] {"TLSv1.3"});
    return s;
  }

  /** Trusts those who are trusted anyway, if their certificate is a daemon's. */
  private static final class Daemons extends X509ExtendedTrustManager {
    private final X509ExtendedTrustManager all;

    Daemons(X509ExtendedTrustManager all) {
      this.all = all;
    }

    private static void check(X509Certificate c) throws CertificateException {
      Collection<List<?>> names = c.getSubjectAlternativeNames();
      if (names != null) {
        for (List<?> name : names) {
          if (name.get(0).equals(URI_NAME) && DAEMON.equals(name.get(1))) {
            return;
          }
        }
      }
      throw new CertificateException("the certificate is not a daemon's");
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type, Socket s)
        throws CertificateException {
      all.checkServerTrusted(chain, type, s);
      check(chain[0]);
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine e)
        throws CertificateException {
      all.checkServerTrusted(chain, type, e);
      check(chain[0]);
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type)
        throws CertificateException {
      all.checkServerTrusted(chain, type);
      check(chain[0]);
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type, Socket s)
        throws CertificateException {
      throw new CertificateException("a client trusts no client");
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine e)
        throws CertificateException {
      throw new CertificateException("a client trusts no client");
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type)
        throws CertificateException {
      throw new CertificateException("a client trusts no client");
    }

    @Override
    public X509Certificate[] getAcceptedIssuers() {
      return all.getAcceptedIssuers();
    }
  }
}
