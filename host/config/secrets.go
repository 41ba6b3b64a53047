package config

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// Secrets returns the texts of a server from [Server.Expand] that must not be shown, such as in
// logs and errors, the longest first. They are
//
//   - the values of ${secret:…}, ${file:…} and ${exec:…}, of inputs unless the file says that they may
//     be shown, and of a HeaderCommand,
//   - values of variables, of the environment too, and of headers and parameters of the URL, if the
//     name looks like the name of a secret, such as API_KEY or Authorization,
//   - the password in the URL.
//
// For a secret of several lines, the result contains the whole secret and each line. It contains no
// text of fewer than 4 bytes, because replacing such a text would change other texts. The result is
// empty for a server that was not expanded.
func (s *Server) Secrets() []string { return slices.Clone(s.secrets) }

// minSecret is the length of the shortest secret, in bytes.
const minSecret = 4

var secretName = regexp.MustCompile(`(?i)token|key|secret|passw|pwd|auth|bearer|credential|cookie|session`)

// allSecrets returns the secrets of an expanded server.
func (e *expansion) allSecrets(s *Server) []string {
	found := slices.Clone(e.secrets)
	for key, value := range s.Env {
		if secretName.MatchString(key) {
			found = append(found, value)
		}
	}
	for key, value := range s.Header {
		if secretName.MatchString(key) {
			_, credentials, _ := strings.Cut(value, " ") // behind the scheme, such as Bearer
			found = append(found, value, credentials)
		}
	}
	if u, err := url.Parse(s.URL); err == nil {
		password, _ := u.User.Password()
		found = append(found, password)
		for key, values := range u.Query() {
			if secretName.MatchString(key) {
				found = append(found, values...)
			}
		}
	}
	return secretForms(found)
}

// secretForms returns secrets together with their quoted and escaped forms.
func secretForms(found []string) []string {
	var all []string
	add := func(secret string) {
		if len(secret) >= minSecret {
			all = append(all, secret)
		}
	}
	for _, secret := range found {
		add(secret)
		for line := range strings.Lines(secret) {
			add(strings.TrimSpace(line))
		}
		quoted := string(jsonscan.AppendQuote(nil, secret))
		add(quoted[1 : len(quoted)-1])
		add(url.QueryEscape(secret))
		add(url.PathEscape(secret))
	}
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
	})
	return slices.Compact(all)
}
