package oauth

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
)

// Limits of challenges. Real responses contain one or two challenges, with a handful of parameters.
const (
	maxChallenges      = 16
	maxChallengeParams = 32
	maxChallengeBytes  = 32 << 10 // of all fields together
)

// A Challenge is a way in which a server asks for credentials, from the header WWW-Authenticate.
//
// Spec: RFC 9110, section 11.6.1; RFC 6750, section 3.
type Challenge struct {
	// Scheme is the authentication scheme, such as "Bearer". It is not case-sensitive.
	Scheme string
	// Token68 is the value of schemes without parameters, such as Negotiate.
	Token68 string
	// Params are the parameters, by their names in lower case.
	Params map[string]string
}

// Is reports whether Scheme is the given scheme, ignoring case.
func (c *Challenge) Is(scheme string) bool { return strings.EqualFold(c.Scheme, scheme) }

// ParseChallenges returns the challenges of a response in their order. A challenge with a duplicate
// parameter is omitted, since it is ambiguous; so is the rest of a field after a syntax error.
func ParseChallenges(header http.Header) []Challenge {
	var all []Challenge
	remaining := maxChallengeBytes
	for _, field := range header.Values("WWW-Authenticate") {
		if remaining -= len(field); remaining < 0 {
			break
		}
		p := challengeParser{rest: field}
		for len(all) < maxChallenges {
			c, unambiguous, ok := p.challenge()
			if !ok {
				break
			}
			if unambiguous {
				all = append(all, c)
			}
		}
	}
	return all
}

// String returns the challenge as a field value, with the parameters in alphabetical order; empty
// if the scheme is not a token. Invalid characters become spaces, and parameters with invalid names
// are omitted, so the result is always safe to send.
func (c Challenge) String() string {
	if !netx.IsToken(c.Scheme) {
		return ""
	}
	var b strings.Builder
	b.WriteString(c.Scheme)
	if len(c.Params) == 0 {
		if oauthwire.IsToken68(c.Token68) {
			b.WriteString(" " + c.Token68)
		}
		return b.String()
	}
	separator := " "
	for _, name := range slices.Sorted(maps.Keys(c.Params)) {
		if netx.IsToken(name) {
			b.WriteString(separator + name + "=")
			writeQuoted(&b, c.Params[name])
			separator = ", "
		}
	}
	return b.String()
}

func writeQuoted(b *strings.Builder, text string) {
	b.WriteByte('"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' && c != '\t' || c == 0x7f:
			b.WriteByte(' ')
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
}

type challengeParser struct{ rest string }

// challenge parses the next challenge. It is ambiguous if a parameter appears twice.
func (p *challengeParser) challenge() (c Challenge, unambiguous, ok bool) {
	p.skip(" \t,")
	if c.Scheme = p.token(); c.Scheme == "" {
		return c, false, false
	}
	if p.atEnd() {
		return c, true, true
	}
	if p.skip(" \t") == 0 {
		return c, false, false
	}
	if c.Token68, ok = p.token68(); ok {
		return c, true, true
	}
	unambiguous, c.Params = true, map[string]string{}
	for n := 0; ; n++ {
		name, more := p.paramName(n == 0)
		if !more {
			return c, unambiguous, n > 0
		}
		value, ok := p.paramValue()
		if !ok || n == maxChallengeParams {
			return c, false, false
		}
		_, twice := c.Params[name]
		unambiguous = unambiguous && !twice
		c.Params[name] = value
	}
}

// paramName parses the name of a parameter and its equals sign. A name without an equals sign is
// the scheme of the next challenge and is not consumed.
func (p *challengeParser) paramName(isFirst bool) (name string, ok bool) {
	before := p.rest
	p.skip(" \t")
	if p.skip(" \t,") == 0 && !isFirst {
		return "", false // only a comma can follow a parameter
	}
	name = p.token()
	p.skip(" \t")
	if name == "" || !strings.HasPrefix(p.rest, "=") {
		p.rest = before
		return "", false
	}
	p.rest = p.rest[1:]
	p.skip(" \t")
	return strings.ToLower(name), true
}

// paramValue parses a token or a quoted-string, up to the end of the parameter. It also accepts
// URLs without quotes, which some servers send.
func (p *challengeParser) paramValue() (value string, ok bool) {
	before := p.rest
	if strings.HasPrefix(p.rest, `"`) {
		value, ok = p.quoted()
	} else {
		p.rest = strings.TrimLeftFunc(p.rest, func(r rune) bool {
			return r > ' ' && r < 0x7f && r != ',' && r != '"' && r != '\\'
		})
		value = before[:len(before)-len(p.rest)]
		ok = value != ""
	}
	return value, ok && p.atEnd()
}

func (p *challengeParser) quoted() (text string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(p.rest); i++ {
		c := p.rest[i]
		if c == '"' {
			p.rest = p.rest[i+1:]
			return b.String(), true
		}
		if c == '\\' {
			if i++; i == len(p.rest) {
				return "", false
			}
			c = p.rest[i]
		}
		if c < ' ' && c != '\t' || c == 0x7f {
			return "", false
		}
		b.WriteByte(c)
	}
	return "", false
}

// token68 parses a token68 if it is alone up to the next comma.
func (p *challengeParser) token68() (text string, ok bool) {
	text, _, _ = strings.Cut(p.rest, ",")
	after := p.rest[len(text):]
	if text = strings.TrimRight(text, " \t"); !oauthwire.IsToken68(text) {
		return "", false
	}
	p.rest = after
	return text, true
}

// token parses the longest token, which may be empty.
func (p *challengeParser) token() string {
	end := 0
	for end < len(p.rest) && netx.IsTokenByte(p.rest[end]) {
		end++
	}
	text := p.rest[:end]
	p.rest = p.rest[end:]
	return text
}

func (p *challengeParser) skip(set string) int {
	after := strings.TrimLeft(p.rest, set)
	n := len(p.rest) - len(after)
	p.rest = after
	return n
}

// atEnd reports whether a list element ends here, apart from white space.
func (p *challengeParser) atEnd() bool {
	after := strings.TrimLeft(p.rest, " \t")
	return after == "" || after[0] == ','
}
