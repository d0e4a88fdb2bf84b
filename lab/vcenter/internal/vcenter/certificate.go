package vcenter

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"time"
)

// Authority signs the certificates of vCenters in a test.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// LoadAuthority reads a certificate authority from PEM files.
func LoadAuthority(certificateFile, keyFile string) (*Authority, error) {
	pair, err := tls.LoadX509KeyPair(certificateFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate authority %s: %w", certificateFile, err)
	}
	certificate, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("certificate authority %s: %w", certificateFile, err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !certificate.IsCA {
		return nil, fmt.Errorf("certificate authority %s: it may not sign certificates; give one with CA:TRUE and its key", certificateFile)
	}
	return &Authority{certificate, key}, nil
}

// NewAuthority makes an authority for a test and the PEM text that clients trust it by.
func NewAuthority(name string) (*Authority, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := newTemplate(name)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	return &Authority{certificate, key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func newTemplate(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		serial = big.NewInt(time.Now().UnixNano())
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: []string{"vCenter simulator"}},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(10, 0, 0),
	}
}

// newCertificate makes a server certificate, signed by the authority or, without one, by itself. Hosts are addresses
// and names.
func newCertificate(name string, hosts []string, authority *Authority) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := newTemplate(name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.BasicConstraintsValid = true
	for _, host := range hosts {
		if address := net.ParseIP(host); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	parent, signer := template, crypto.Signer(key)
	if authority != nil {
		parent, signer = authority.certificate, authority.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return tls.Certificate{}, err
	}
	chain := [][]byte{der}
	if authority != nil {
		chain = append(chain, authority.certificate.Raw)
	}
	return tls.Certificate{Certificate: chain, PrivateKey: key}, nil
}

// thumbprint is a digest as vSphere's tools write it: AA:BB:CC.
func thumbprint(digest []byte) string {
	pairs := make([]string, 0, len(digest))
	for _, b := range digest {
		pairs = append(pairs, fmt.Sprintf("%02X", b))
	}
	return strings.Join(pairs, ":")
}

// Thumbprints are the SHA-1 and SHA-256 digests of the server's certificate.
func (v *VCenter) Thumbprints() (string, string) {
	der := v.certificate.Certificate[0]
	short, long := sha1.Sum(der), sha256.Sum256(der)
	return thumbprint(short[:]), thumbprint(long[:])
}

// CertificatePEM is the server's certificate, for clients that pin it.
func (v *VCenter) CertificatePEM() []byte {
	var text bytes.Buffer
	_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: v.certificate.Certificate[0]})
	return text.Bytes()
}

// WriteCertificate saves the server's certificate to a file.
func (v *VCenter) WriteCertificate(file string) error {
	return os.WriteFile(file, v.CertificatePEM(), 0o644)
}
