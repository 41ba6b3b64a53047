package apps

import (
	"slices"
	"strings"
)

// Policy returns the Content-Security-Policy of a view. It allows the document itself and the
// origins of c. Invalid origins, and those after the first 32 of a list, are left out, so that c
// cannot inject directives into the policy.
//
// It is the policy of the specification with two further restrictions, which the specification
// allows: forms cannot be submitted, and without ConnectDomains the view cannot connect.
//
// Spec: SEP-1865, Host Behavior, Content Security Policy Enforcement.
func (c CSP) Policy() string {
	resources := sources(c.ResourceDomains, false)
	var b strings.Builder
	directive := func(name string, values ...string) {
		if b.Len() > 0 {
			b.WriteString("; ")
		}
		b.WriteString(name)
		for _, v := range values {
			b.WriteByte(' ')
			b.WriteString(v)
		}
	}
	with := func(own ...string) []string { return slices.Concat(own, resources) }
	directive("default-src", "'none'")
	directive("script-src", with("'self'", "'unsafe-inline'")...)
	directive("style-src", with("'self'", "'unsafe-inline'")...)
	directive("img-src", with("'self'", "data:")...)
	directive("font-src", with("'self'")...)
	directive("media-src", with("'self'", "data:")...)
	directive("connect-src", orElse(sources(c.ConnectDomains, true), "'none'")...)
	directive("frame-src", orElse(sources(c.FrameDomains, false), "'none'")...)
	directive("object-src", "'none'")
	directive("base-uri", orElse(sources(c.BaseURIDomains, false), "'self'")...)
	directive("form-action", "'none'")
	return b.String()
}

// sources returns the valid origins among texts, without duplicates.
func sources(texts []string, sockets bool) (found []string) {
	for _, text := range texts[:min(len(texts), maxOrigins)] {
		if o, err := parseOrigin(text, sockets); err == nil && !slices.Contains(found, o.text) {
			found = append(found, o.text)
		}
	}
	return found
}

func orElse(values []string, other string) []string {
	if len(values) == 0 {
		return []string{other}
	}
	return values
}
