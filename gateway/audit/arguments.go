package audit

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

// Limits of the shape of arguments in a record.
const (
	maxShapeDepth   = 6
	maxShapeMembers = 64
	maxShapeName    = 64 // bytes of a name
)

// appendForm appends arguments in the form of the log: an object with the form and the size in bytes.
func (c *encoder) appendForm(b, raw []byte) []byte {
	switch {
	case c.brief || rawjson.Valid(raw) != nil:
		b = append(b, `{"omitted":true`...)
	case c.form == ArgumentsHash:
		b = append(c.appendKeyedHash(append(b, `{"hash":"`...), raw), '"')
	case c.form == ArgumentsRedacted:
		c.searched = 0
		b = c.appendRedacted(append(b, `{"redacted":`...), raw, false)
	case c.form == ArgumentsFull:
		if b = append(b, '{'); c.hides(raw) {
			b = append(b, `"masked":true,`...)
		}
		b = c.appendMapped(append(b, `"full":`...), raw, c.record.Mask)
	default:
		b = c.appendShape(append(b, `{"shape":`...), raw, 0)
	}
	return append(strconv.AppendInt(append(b, `,"bytes":`...), int64(len(raw)), 10), '}')
}

// hides reports whether a value contains secrets.
func (c *encoder) hides(raw []byte) (found bool) {
	walk(raw, func(text string) { found = found || c.record.Mask(text) != text })
	return found
}

// walk visits the names, texts and numbers of a value.
func walk(raw []byte, visit func(text string)) {
	switch rawjson.Kind(raw) {
	case '{':
		for key, value := range rawjson.Members(raw) {
			visit(string(key))
			walk(value, visit)
		}
	case '[':
		for element := range rawjson.Elements(raw) {
			walk(element, visit)
		}
	case '"':
		text, _ := rawjson.Unquote(raw) // valid
		visit(text)
	default:
		visit(string(raw))
	}
}

// appendShape appends names, types and lengths.
func (c *encoder) appendShape(b, raw []byte, depth int) []byte {
	switch rawjson.Kind(raw) {
	case '{':
		if depth >= maxShapeDepth {
			return append(b, `"object"`...)
		}
		b = append(b, '{')
		n := 0
		for key, value := range rawjson.Members(raw) {
			if n++; n > maxShapeMembers {
				b = append(b, `,"…":"more"`...)
				break
			}
			if n > 1 {
				b = append(b, ',')
			}
			name := c.record.Mask(string(key))
			b = append(rawjson.AppendQuote(b, name[:min(len(name), maxShapeName)]), ':')
			b = c.appendShape(b, value, depth+1)
		}
		return append(b, '}')
	case '[':
		return c.appendArrayShape(b, raw, depth)
	case '"':
		text, _ := rawjson.Unquote(raw) // valid
		return append(strconv.AppendInt(append(b, `"string:`...), int64(len(text)), 10), '"')
	case 't', 'f':
		return append(b, `"boolean"`...)
	case 'n':
		return append(b, `null`...)
	}
	return append(b, `"number"`...)
}

// appendArrayShape appends the length of an array and the shape of its first element.
func (c *encoder) appendArrayShape(b, raw []byte, depth int) []byte {
	n := 0
	var first []byte
	for element := range rawjson.Elements(raw) {
		if n++; n == 1 {
			first = element
		}
	}
	b = fmt.Appendf(b, `["array:%d"`, n)
	if n > 0 && depth < maxShapeDepth {
		b = c.appendShape(append(b, ','), first, depth+1)
	}
	return append(b, ']')
}

const (
	// maxRedactedText bounds texts in redacted arguments, in characters: documents are not kept.
	maxRedactedText = 200
	redactedText    = "[redacted]"
)

// The expressions are compiled when they are first used, not at each start of the command.
var (
	// secretName matches the names of members whose values are secrets. A short word must be a
	// whole word of the name, so that "company" does not match "pan" nor "pinned" match "pin".
	secretName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)` + secretWords + `|` +
			`(^|[^a-z])(pw|pass|otp|totp|mfa|2fa|pin|tan|pan|cvv|cvc|cvn|csc|ssn|iban|puk|nonce|` +
			`auth|jwt|sid|dsn|seed)([^a-z]|$)|` +
			`card[_-]?(no|num)|account[_-]?num|routing[_-]?num`)
	})
	// secretPair matches the name and the value of a secret in a text, such as an option of a
	// program, a header, a query parameter, or a line of a configuration file.
	secretPair = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)((?:[a-z0-9_.-]*(?:` + secretWords + `)[a-z0-9_.-]*|` +
			`\b(?:[a-z0-9]+[_-])*(?:pw|pass|otp|totp|mfa|pin|tan|cvv|cvc|ssn|iban))(?:\\*["'])?` +
			`(?:\s*(?:=>|:=|[=:>])\s*|\s+is\s+))(?:(?:bearer|basic|digest|token)\s+)?` +
			`(\\*"[^"\r\n]*"|\\*'[^'\r\n]*'|[^\s"',;&<]+)`)
	})
	// secretOption matches an option of a program whose value is the next word.
	secretOption = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(--?[a-z0-9-]*(?:` + secretWords + `)[a-z0-9-]*\s+|(?:^|\s)-(?:u|p)\s+)` +
			`("[^"]*"|'[^']*'|[^\s"'-][^\s]*)`)
	})
	// secretHeader matches a header whose whole value, to the end of the line, is a secret.
	secretHeader = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?im)((?:proxy-)?authorization|(?:set-)?cookie)(["']?\s*[:=]\s*)[^\r\n"']+`)
	})
	// cardNumber matches digits in groups, which may be the number of a payment card; see [isCard].
	cardNumber = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\b\d(?:[ -]?\d){11,18}\b`)
	})
	// secretText matches texts that may be secrets, with fewer characters than
	// [policy.RedactSecrets] requires: a record may lose a harmless text.
	secretText = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.|` +
			`\b(sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}|` +
			`\bglpat-[A-Za-z0-9_-]{16,}|\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\b(AKIA|ASIA)[A-Z0-9]{16}\b|` +
			`\bAIza[A-Za-z0-9_-]{35}|(?i:\bbearer\s+[A-Za-z0-9._~+/-]{8,})|://[^/\s:@]+:[^/\s:@]+@`)
	})
)

// secretWords matches words that identify a secret anywhere in its name.
const secretWords = `token|secret|passw|pwd|passphrase|passcode|passkey|credential|cookie|authorization|` +
	`api[_-]?key|private[_-]?key|access[_-]?key|auth[_-]?key|encryption[_-]?key|signing[_-]?key|session[_-]?id|` +
	`one[_-]?time|verification[_-]?code|recovery[_-]?(?:code|phrase)|security[_-]?code|mnemonic|card[_-]?number|` +
	`social[_-]?security|connection[_-]?string`

// isSecretName reports whether the name of a member suggests that its value is a secret.
func isSecretName(name string) bool {
	return secretName().MatchString(name) || secretName().MatchString(camelCase.ReplaceAllString(name, "${1}_${2}"))
}

// camelCase matches the boundary between two words in a name such as userPw.
var camelCase = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// isCard reports whether the digits of a text form the number of a payment card: 12 to 19 digits
// with a valid Luhn check digit.
func isCard(text string) bool {
	sum, n := 0, 0
	for i := len(text) - 1; i >= 0; i-- {
		if text[i] < '0' || text[i] > '9' {
			continue
		}
		digit := int(text[i] - '0')
		if n%2 == 1 {
			if digit *= 2; digit > 9 {
				digit -= 9
			}
		}
		sum, n = sum+digit, n+1
	}
	return n >= 12 && n <= 19 && sum > 0 && sum%10 == 0
}

// appendRedacted appends a value without texts that look like secrets or are long. A secret value
// is replaced as a whole.
func (c *encoder) appendRedacted(b, raw []byte, secret bool) []byte {
	switch rawjson.Kind(raw) {
	case '{', '[':
		return appendElements(b, raw, c.redact, func(b []byte, name string, value []byte) []byte {
			return c.appendRedacted(b, value, secret || isSecretName(name))
		})
	case 't', 'f', 'n':
		return append(b, raw...)
	}
	if secret {
		return rawjson.AppendQuote(b, redactedText)
	}
	return c.appendMapped(b, raw, c.redact)
}

const (
	// maxRedactInput limits the beginning of a text that is searched for secrets, in bytes. It
	// exceeds maxRedactedText, so that a secret at the end of the recorded text is found as a
	// whole.
	maxRedactInput = 4 << 10
	// maxSearched limits how many bytes of the texts in one record are searched. Further texts are
	// omitted.
	maxSearched = 256 << 10
)

// redact returns a text without secrets, shortened if it is long.
func (c *encoder) redact(text string) string {
	length := utf8.RuneCountInString(text)
	if c.searched += min(len(text), maxRedactInput); c.searched > maxSearched {
		return fmt.Sprintf("[omitted] (%d characters)", length)
	}
	if text = c.record.Mask(text); len(text) > maxRedactInput {
		text = text[:maxRedactInput]
		if end := strings.LastIndexAny(text, " \t\r\n"); end > 0 { // the last word may be a part of a secret
			text = text[:end]
		}
	}
	text = strings.ToValidUTF8(policy.RedactSecrets(text, redactedText), "\uFFFD")
	text = secretText().ReplaceAllString(text, redactedText)
	text = secretHeader().ReplaceAllString(text, "${1}${2}"+redactedText)
	text = secretPair().ReplaceAllString(text, "${1}"+redactedText)
	text = secretOption().ReplaceAllString(text, "${1}"+redactedText)
	text = cardNumber().ReplaceAllStringFunc(text, func(digits string) string {
		if isCard(digits) {
			return redactedText
		}
		return digits
	})
	if length <= maxRedactedText {
		return text
	}
	runes := []rune(text)
	return fmt.Sprintf("%s… (%d characters)", string(runes[:min(len(runes), maxRedactedText)]), length)
}

// appendMapped appends a value whose names, texts and numbers are replaced by the results of a
// function.
func (c *encoder) appendMapped(b, raw []byte, replace func(text string) string) []byte {
	switch rawjson.Kind(raw) {
	case '{', '[':
		return appendElements(b, raw, replace, func(b []byte, _ string, value []byte) []byte {
			return c.appendMapped(b, value, replace)
		})
	case '"':
		text, _ := rawjson.Unquote(raw) // valid
		return rawjson.AppendQuote(b, replace(text))
	case 't', 'f', 'n':
		return append(b, raw...)
	}
	if text := replace(string(raw)); text != string(raw) {
		return rawjson.AppendQuote(b, text)
	}
	return append(b, raw...)
}

// appendElements appends an object with its names replaced, or an array. appendValue appends each value; the
// name of an element of an array is empty.
func appendElements(b, raw []byte, replace func(name string) string,
	appendValue func(b []byte, name string, value []byte) []byte,
) []byte {
	if rawjson.Kind(raw) == '[' {
		b = append(b, '[')
		n := 0
		for element := range rawjson.Elements(raw) {
			if n++; n > 1 {
				b = append(b, ',')
			}
			b = appendValue(b, "", element)
		}
		return append(b, ']')
	}
	b = append(b, '{')
	n := 0
	for key, value := range rawjson.Members(raw) {
		if n++; n > 1 {
			b = append(b, ',')
		}
		name := string(key)
		b = append(rawjson.AppendQuote(b, replace(name)), ':')
		b = appendValue(b, name, value)
	}
	return append(b, '}')
}
