package browser

import (
	"slices"
	"testing"
)

// Requirement: SEC-15, SEC-17
func TestOnlySafePagesMayBeOpened(t *testing.T) {
	for page, valid := range map[string]bool{
		"https://as.example/authorize?a=b%20c": true,
		"http://127.0.0.1:8080/authorize":      true,
		"http://localhost/":                    true,
		"http://[::1]:1/":                      true,
		"http://a.localhost:1/":                true,
		"http://a.localhost.evil.example/":     false,
		"http://alocalhost/":                   false,
		"HTTPS://as.example/":                  true,
		"http://as.example/":                   false,
		"http://127.0.0.1.evil.example/":       false,
		"https://user@as.example/":             false,
		"https:as.example":                     false,
		"https:///authorize":                   false,
		"javascript:alert(1)":                  false,
		"file:///etc/passwd":                   false,
		"calculator:":                          false,
		"https://аs.example/":                  false,
		"https://as.example\n/":                false,
		" https://as.example/":                 false,
		"https://as.example/a b":               false,
		"https://as.example/\u202egnp.exe":     false,
		"https://as.example/\u200b":            false,
		"https://as.example/\u00a0":            false,
		"https://as.example/\xff":              false,
		"https://as.example/é":                 true,
		"https://[fe80::1%25en0]/":             false,
		"http://[::1%25lo]/":                   false,
		"https://[2001:db8::1]/":               true,
		"https://xn--80ak6aa92e.com/":          true, // with a warning
	} {
		if _, err := Check(page); (err == nil) != valid {
			t.Errorf("Check(%q): error %v, want valid: %t", page, err, valid)
		}
	}
}

// Requirement: SEC-16
func TestPagesAreNotOpenedThroughAShell(t *testing.T) {
	const page = "https://as.example/?a=$(id)&b=`id`;calc"
	for system, want := range map[string]string{"linux": "xdg-open", "freebsd": "xdg-open", "darwin": "open",
		"windows": "rundll32"} {
		name, args := command(system, page)
		if name != want || !slices.Contains(args, page) {
			t.Errorf("%s: got %s %q, want %s with the page as one argument", system, name, args, want)
		}
	}
}
