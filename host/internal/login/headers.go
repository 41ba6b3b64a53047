package login

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/internal/netx"
)

// CheckHeaders refuses credentials that would be readable on the network, and a header
// Authorization from a header command, because it is not the caller's.
func CheckHeaders(e *server.Server, s *config.Server) error {
	if err := checkHTTP(e, s); err != nil {
		return err
	}
	switch e.Settings.Auth {
	case config.AuthNone, config.AuthGateway, config.AuthCaller:
		for name := range s.Header {
			if http.CanonicalHeaderKey(name) == "Authorization" {
				return errors.New("headersHelper: has a header Authorization, which excludes \"auth\": \"" +
					string(e.Settings.Auth) + "\"")
			}
		}
	}
	return nil
}

// checkHTTP refuses to send credentials of the entry or of callers to an http URL of another
// machine.
func checkHTTP(e *server.Server, s *config.Server) error {
	u, err := url.Parse(s.URL)
	if s.Type == config.TypeStdio || err != nil || u.Scheme != "http" || e.Settings.InsecureHTTP ||
		netx.IsLoopback(u.Hostname()) {
		return nil
	}
	names := append(slices.Sorted(maps.Keys(s.Header)), e.Settings.ForwardHeaders...)
	if e.Settings.InsecureForwardAuthorization {
		names = append(names, "Authorization")
	}
	if u.User != nil {
		names = append(names, "Authorization")
	}
	for _, name := range names {
		if netx.IsCredentialHeader(name) {
			return fmt.Errorf("the header %q for http://%s would be readable on the network: use https, or set "+
				"\"insecureHTTP\": true in the settings of the server", name, u.Host)
		}
	}
	return nil
}
