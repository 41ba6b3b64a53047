package oauthfetch

import (
	"math"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxErrorCode and MaxErrorText bound, in bytes, how much text of a server an error repeats.
const MaxErrorCode, MaxErrorText = 64, 256

// CleanText returns the printable characters of a text that a server wrote, on one line, in at most
// max bytes. The result can be shown to people and logged.
func CleanText(text string, max int) string {
	var b strings.Builder
	for _, r := range text {
		if utf8.RuneLen(r) > max-b.Len() {
			break
		}
		if unicode.IsPrint(r) && r != utf8.RuneError {
			b.WriteRune(r)
		}
	}
	return strings.TrimSpace(b.String())
}

// CleanTextWithout is CleanText that returns "not shown" if the text contains one of the secrets.
// The text is cut last, since a part of a secret could remain otherwise.
func CleanTextWithout(text string, max int, secrets []string) string {
	const minSecret = 4 // anything shorter is not a secret and occurs in every text
	whole := CleanText(text, math.MaxInt)
	for _, secret := range secrets {
		if len(secret) >= minSecret && (strings.Contains(text, secret) || strings.Contains(whole, secret)) {
			return "not shown"
		}
	}
	return CleanText(text, max)
}

// ShownURL returns scheme, host and path of a URL, for errors and logs. User, query and fragment
// may be secret.
func ShownURL(u *url.URL) string {
	if u == nil {
		return "a URL"
	}
	const max = 200 // of a path, for errors that people read
	text := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
	if len(text) > max {
		text = text[:max] + "…"
	}
	return text
}
