package cluster

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"time"
)

// certificateName is the name in the certificate, which is the same for all hosts of a cluster.
const certificateName = "cluster.patchbay.invalid"

// tlsConfig returns the configuration of connections between hosts with a key: both sides present the certificate
// of a private key that follows from the key, and accept no other.
func tlsConfig(key []byte) (*tls.Config, error) {
	seed, err := hkdf.Key(sha256.New, key, nil, "patchbay cluster certificate", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	private := ed25519.NewKeyFromSeed(seed)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{certificateName},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), // the key does not expire
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(certificate)
	return &tls.Config{MinVersion: tls.VersionTLS13, ServerName: certificateName, RootCAs: trusted, ClientCAs: trusted,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private, Leaf: certificate}}}, nil
}
