package target

import (
	"cmp"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// PublicName returns a URL without its secrets, or the name of a program without its arguments.
func (t *Target) PublicName() string {
	if t.URL == "" {
		return filepath.Base(t.Command[0])
	}
	return PublicURL(t.URL)
}

// Hidden replaces a secret in lists.
const Hidden = "***"

// PublicURL returns a URL without user information, and without parts that often contain secrets:
// the query, the fragment, and segments of the path that look like keys.
func PublicURL(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		if scheme, _, found := strings.Cut(address, "://"); found {
			return scheme + "://" + Hidden
		}
		return Hidden
	}
	segments := strings.Split(u.Path, "/")
	for i, segment := range segments {
		segments[i] = HideKeys(segment)
	}
	text := u.Scheme + "://" + u.Host + strings.Join(segments, "/")
	if u.RawQuery != "" {
		text += "?" + Hidden
	}
	return text
}

// PublicArguments returns arguments without the values that may be secret: values of variables,
// headers and flags with secret names, and words that look like keys.
func PublicArguments(args []string) []string {
	out, next := make([]string, len(args)), false
	for i, arg := range args {
		name, _, hasValue := strings.Cut(arg, "=")
		header, _, isHeader := strings.Cut(arg, ": ")
		switch {
		case next && !strings.HasPrefix(arg, "--"):
			out[i] = Hidden
		case hasValue && !strings.Contains(name, "://") && SecretName.MatchString(name):
			out[i] = name + "=" + Hidden
		case isHeader:
			out[i] = header + ": " + Hidden
		case strings.Contains(arg, "://"):
			before, address, isValue := strings.Cut(arg, "=")
			if !isValue || strings.Contains(before, "://") {
				out[i] = PublicURL(arg)
			} else {
				out[i] = before + "=" + PublicURL(address)
			}
		default:
			out[i] = HideKeys(arg)
		}
		next = !hasValue && strings.HasPrefix(arg, "-") && SecretName.MatchString(arg)
	}
	return out
}

// SecretName matches the names of variables and headers that probably hold secrets.
var SecretName = regexp.MustCompile(`(?i)token|key|secret|passw|pwd|auth|bearer|credential|cookie|session|^-[pu]$`)

// minSecret is the length from which a value is masked, in bytes: shorter texts occur everywhere.
const minSecret = 4

// HideFlags makes the credentials of flags, headers, variables and the URL secrets, which messages do not show.
func (t *Target) HideFlags() {
	all := slices.Clone(t.Secrets)
	add := func(isSecret bool, value string) {
		if isSecret && len(value) >= minSecret && !slices.Contains(all, value) {
			all = append(all, value)
		}
	}
	for name, values := range t.Header {
		for _, value := range values {
			_, credential, _ := strings.Cut(value, " ") // after a scheme such as Bearer
			add(SecretName.MatchString(name), cmp.Or(credential, value))
		}
	}
	for _, variable := range t.Environment {
		name, value, _ := strings.Cut(variable, "=")
		add(SecretName.MatchString(name), value)
	}
	for i, public := range PublicArguments(t.Command) {
		shown, ok := strings.CutSuffix(public, Hidden) // also of scripts with messages, which are no secrets
		add(ok && !strings.Contains(strings.TrimSuffix(shown, ": "), " "), strings.TrimPrefix(t.Command[i], shown))
	}
	if u, err := url.Parse(t.URL); err == nil {
		password, _ := u.User.Password()
		add(true, password)
		for name, values := range u.Query() {
			for _, value := range values {
				add(SecretName.MatchString(name), value)
			}
		}
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	t.Secrets = all
}

// HideKeys replaces long words of letters and digits, and words with the prefixes of known tokens.
func HideKeys(text string) string {
	return KeyLike.ReplaceAllStringFunc(text, func(word string) string {
		const longest = 20 // of names; random keys are longer
		known := knownKey.MatchString(word)
		if known || len(word) >= longest && strings.ContainsAny(word, "0123456789") {
			return Hidden
		}
		return word
	})
}

var (
	// KeyLike matches text that looks like an API key.
	KeyLike  = regexp.MustCompile(`[A-Za-z0-9_+=-]{8,}`)
	knownKey = regexp.MustCompile(
		`^(sk|pk|rk|ghp|gho|ghu|ghs|github_pat|glpat|xox[a-z]|AKIA|AIza|eyJ|npm|hf)[-_A-Z0-9]`)
)
