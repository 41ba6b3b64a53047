package browser

import (
	"strings"
	"testing"
)

// Requirement: ELI-18
func TestSuspiciousHostsHaveAWarning(t *testing.T) {
	for host, want := range map[string]string{
		"example.com":              "",
		"127.0.0.1":                "",
		"xn--80ak6aa92e.com":       `as "\u0430\u0440\u0440\u04cf\u0435.com"`,
		"XN--BCHER-KVA.example":    `as "b\u00fccher.example"`,
		"login.xn--pypal-4ve.com":  "mixes scripts",
		"xn--mnchen-3ya.de":        `as "m\u00fcnchen.de"`,
		"xn--99999999999999.com":   "encoded",
		"xn--a-.com":               "encoded",
		"xn--.com":                 "encoded",
		strings.Repeat("xn--a", 9): "encoded",
	} {
		if got := HostWarning(host); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("HostWarning(%q) = %q, want %q in it", host, got, want)
		}
		if want == "" || !strings.Contains(want, "mixes") {
			if got := HostWarning(host); strings.Contains(got, "mixes") {
				t.Errorf("HostWarning(%q) = %q, want no mixed scripts", host, got)
			}
		}
	}
}

func FuzzHostWarning(f *testing.F) {
	f.Add("xn--80ak6aa92e.com")
	f.Fuzz(func(_ *testing.T, host string) { _ = HostWarning(host) })
}
