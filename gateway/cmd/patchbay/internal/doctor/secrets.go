package doctor

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"html"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/login"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/visible"
)

// minSecret is the length from which a value is masked, in bytes: anything shorter occurs in every
// text, and its masking would make a report unreadable.
const minSecret = 4

// minPart is the length from which the beginning of a secret is masked, in bytes.
const minPart = 8

// secrets are the values that a report must not contain, the longest first.
type secrets struct{ values []string }

// addTarget adds the secrets of the configuration, the header, the URL and the environment.
func (s *secrets) addTarget(t *target.Target) {
	s.add(t.Secrets...)
	for _, values := range t.Header {
		for _, value := range values {
			scheme, credential, _ := strings.Cut(value, " ")
			s.add(cmp.Or(credential, scheme))
			if plain, err := base64.StdEncoding.DecodeString(credential); err == nil {
				_, password, _ := strings.Cut(string(plain), ":")
				s.add(password) // of the scheme Basic
			}
		}
	}
	if u, err := url.Parse(t.URL); err == nil {
		password, _ := u.User.Password()
		s.add(password)
		for _, values := range u.Query() {
			s.add(values...)
		}
	}
	for _, variable := range t.Environment {
		name, value, _ := strings.Cut(variable, "=")
		if target.SecretName.MatchString(name) || target.HideKeys(value) != value {
			s.add(value)
		}
	}
	s.add(os.Getenv(login.EnvSecret))
}

// add adds values, also as they appear in a URL, in HTML and in quoted strings.
func (s *secrets) add(values ...string) {
	for _, value := range values {
		quoted := strconv.Quote(value)
		inJSON, _ := json.Marshal(value) // never fails for a string; escapes &, < and >
		for _, form := range []string{value, url.QueryEscape(value), url.PathEscape(value), html.EscapeString(value),
			quoted[1 : len(quoted)-1], string(inJSON[1 : len(inJSON)-1]),
			strings.ReplaceAll(string(inJSON[1:len(inJSON)-1]), `\`, `\\`)} {
			if len(form) >= minSecret && !slices.Contains(s.values, form) {
				s.values = append(s.values, form)
			}
		}
	}
	slices.SortFunc(s.values, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
}

// mask replaces the secrets in a text, and the beginnings of secrets: errors cut the text of a
// server.
func (s *secrets) mask(text string) string {
	for _, secret := range s.values { // first: a beginning is also that of other forms of the secret
		text = strings.ReplaceAll(text, secret, target.Hidden)
	}
	for _, secret := range s.values {
		least := minPart + max(strings.Index(secret, "://"), 0) // the scheme of a URL is no secret
		for i := 0; i >= 0 && len(secret) > least; i = strings.Index(text, secret[:least]) {
			rest, n := text[i:], 0
			for n < min(len(rest), len(secret)) && rest[n] == secret[n] {
				n++
			}
			if n >= least {
				text = text[:i] + target.Hidden + rest[n:]
			}
		}
	}
	return text
}

// clean returns a line of at most so many characters without secrets and hidden characters. Text of
// a server may contain both.
func (s *secrets) clean(text string, most int) string {
	return term.Shorten(visible.Escape(s.mask(strings.Join(strings.Fields(s.mask(text)), " ")), nil), most)
}

// maxExcerpt limits the shown beginning of a body or line, in characters.
const maxExcerpt = 300

// excerpt returns the beginning of a text, quoted.
func (s *secrets) excerpt(text []byte) string { return `"` + s.clean(string(text), maxExcerpt) + `"` }
