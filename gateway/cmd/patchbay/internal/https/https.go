// Package https serves https: with certificates from files, which it reads again when they change, or
// from a certificate authority (ACME), and with client certificates.
package https

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/acme"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/state"
)

const (
	// filesInterval is how often files are read: a certificate is renewed days before its end, but the
	// trust in an authority that is removed must end soon.
	filesInterval = 2 * time.Second
	// maxFile limits a file: a chain of certificates has a few KiB, a list of authorities up to 1 MiB.
	maxFile = 1 << 20
	// soon is when the end of a certificate from a file is reported: a week is enough to renew it. If the
	// certificate is valid for less than three weeks, it is the last third of that time.
	soon = 7 * 24 * time.Hour
	// reportInterval is how often it is reported again.
	reportInterval = 24 * time.Hour
)

// A Server holds the certificates of a listener. It is safe for concurrent use.
type Server struct {
	settings    *gatewayconfig.TLS
	log         *slog.Logger
	authorities *gateway.Authorities // nil without client certificates
	certificate atomic.Pointer[tls.Certificate]
	acme        *authority // nil with files

	pair, roots [][]byte  // the files as they were read last; of the goroutine of Follow
	reported    time.Time // when the end of the certificate was reported; of the same goroutine
	unread      string    // the last failure to read; of the same goroutine
}

// Options configures a [Server].
type Options struct {
	Settings *gatewayconfig.TLS
	// State stores the certificates of an authority, so that all gateways of a store use them.
	State state.Store
	// Transport sends the requests to an authority.
	Transport http.RoundTripper
	Logger    *slog.Logger
}

// Open reads the certificates of the settings.
func Open(o *Options) (s *Server, err error) {
	settings := o.Settings
	s = &Server{settings: settings, log: o.Logger}
	if settings.ACME != nil {
		s.acme = newAuthority(settings.ACME, o)
	} else if _, err := s.readPair(); err != nil {
		return nil, err
	}
	if settings.Clients == nil {
		return s, nil
	}
	s.roots, err = readFiles(settings.Clients.Authorities)
	if err != nil {
		return nil, err
	}
	s.authorities, err = gateway.ParseAuthorities(s.roots[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", settings.Clients.Authorities, err)
	}
	return s, nil
}

// ClientCertificates returns the option of a gateway, or nil if it accepts no client certificates.
func (s *Server) ClientCertificates() *gateway.ClientCertificates {
	if s.authorities == nil {
		return nil
	}
	c := s.settings.Clients
	return &gateway.ClientCertificates{Authorities: s.authorities, Name: gateway.CertificateName(c.Name),
		Profiles: c.Profiles}
}

// Listener returns a listener whose connections use TLS.
func (s *Server) Listener(l net.Listener) net.Listener {
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.certificate.Load(), nil }
	if s.acme != nil {
		c.GetCertificate = s.acme.manager.GetCertificate
		c.NextProtos = append(c.NextProtos, acme.ALPNProto)
	}
	if s.authorities != nil {
		plain := c.Clone()
		c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if s.acme != nil && slices.Equal(hello.SupportedProtos, []string{acme.ALPNProto}) {
				return plain, nil // the authority sends no certificate
			}
			of := plain.Clone()
			of.ClientCAs, of.ClientAuth = s.authorities.Pool(), tls.VerifyClientCertIfGiven
			if s.settings.Clients.Required {
				of.ClientAuth = tls.RequireAndVerifyClientCert
			}
			return of, nil
		}
	}
	return tls.NewListener(l, c)
}

// Follow reads changed files, and serves the challenges of an authority, until ctx ends. It returns
// when the address for challenges is open; end ends both, and waits for their end.
func (s *Server) Follow(ctx context.Context) (end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	waitACME := func() {}
	if s.acme != nil {
		if waitACME, err = s.acme.serve(ctx, s.log); err != nil {
			cancel()
			return nil, err
		}
	}
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		ticks := time.NewTicker(filesInterval)
		defer ticks.Stop()
		for {
			s.reportEnd(time.Now())
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
				s.readChanges()
			}
		}
	}()
	return func() {
		cancel()
		<-done
		waitACME()
	}, nil
}

// readChanges uses changed files. If they are invalid, the last valid files stay in use.
func (s *Server) readChanges() {
	var err error
	if s.acme == nil {
		var changed bool
		if changed, err = s.readPair(); changed {
			s.log.Info("https: new certificate in use", "file", s.settings.Certificate,
				"expires", s.certificate.Load().Leaf.NotAfter)
		}
	}
	if s.authorities != nil {
		err = errors.Join(err, s.readAuthorities())
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != s.unread {
		s.log.Warn("https: the last valid files stay in use", "error", text)
	}
	s.unread = text
}

func (s *Server) readAuthorities() error {
	name := s.settings.Clients.Authorities
	roots, err := readFiles(name)
	if err != nil || slices.EqualFunc(roots, s.roots, bytes.Equal) {
		return err
	}
	if err := s.authorities.Replace(roots[0]); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s.roots = roots
	s.log.Info("https: new client certificate authorities in use", "file", name)
	return nil
}

// readPair reads the certificate and its key. While a program replaces the files one after the other,
// they do not match, which is an error.
func (s *Server) readPair() (changed bool, err error) {
	pair, err := readFiles(s.settings.Certificate, s.settings.Key)
	if err != nil || slices.EqualFunc(pair, s.pair, bytes.Equal) {
		return false, err
	}
	c, err := tls.X509KeyPair(pair[0], pair[1])
	if err != nil {
		return false, fmt.Errorf("certificate %s with key %s: %w", s.settings.Certificate, s.settings.Key, err)
	}
	s.certificate.Store(&c)
	s.pair, s.reported = pair, time.Time{}
	return true, nil
}

// reportEnd reports once a day that the certificate of a file ends soon.
func (s *Server) reportEnd(now time.Time) {
	c := s.certificate.Load()
	if c == nil || now.Sub(s.reported) < reportInterval {
		return
	}
	if left := min(soon, c.Leaf.NotAfter.Sub(c.Leaf.NotBefore)/3); now.Add(left).Before(c.Leaf.NotAfter) {
		return
	}
	s.reported = now
	message := "https: the certificate expires soon: renew the file"
	if now.After(c.Leaf.NotAfter) {
		message = "https: the certificate has expired, and clients refuse it: renew the file"
	}
	s.log.Warn(message, "file", s.settings.Certificate, "expires", c.Leaf.NotAfter)
}

func readFiles(names ...string) (all [][]byte, err error) {
	for _, name := range names {
		text, err := readFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, nil
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("read %s: more than %d bytes", name, maxFile)
	}
	return text, err
}
