package config_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/host/config"
)

// Settings that are accepted are within their limits, an error has its place, and the schema accepts
// what the package accepts.
func FuzzSettings(f *testing.F) {
	f.Add(`{"names": {"mode": "none", "max": 36}, "tools": {"keep": ["*"]}}`)
	f.Add(`{"servers": {"a": {"timeout": "1m", "roots": ["file:///a"], "limits": {"memory": "1GiB", "cpu": 1e3}}, "b": {"era": "session"}}}`)
	f.Add(`{"servers": {"a": {"rename": {"x": "y"}, "hideArgs": {"x": ["y"]}, "idle": "0s"}}, "profiles": {"p": {"servers": ["a"]}}}`)
	f.Add(`{"names": null, "servers": {"a~/b": {"auth": 1}}, /* x */ }`)
	place := regexp.MustCompile(`^line \d+, column \d+: patchbay`)
	s := validator(f)
	f.Fuzz(func(t *testing.T, text string) {
		text = `{"servers": {"a": {"command": "x"}, "b": {"url": "x"}}, "patchbay": ` + text + `}`
		file, err := config.Parse([]byte(text))
		if err != nil {
			return
		}
		got := new(config.Settings)
		if err := file.Decode(got); err != nil {
			if !place.MatchString(err.Error()) || len(err.Error()) > 16<<10 {
				t.Errorf("error %.500q, want a line, a column and the member", err)
			}
			return
		}
		if err := validate(t, s, text); err != nil && !strings.Contains(text, "inputs") {
			t.Errorf("the schema refuses it: %v", err)
		}
		if len(got.Servers) != 2 || got.Names.Max < 36 || got.Names.Max > 128 || got.Tools.Mode == "" {
			t.Errorf("got %+v", got)
		}
		for name, s := range got.Servers {
			if s.Timeout <= 0 || s.MaxTimeout < s.Timeout || s.Idle < 0 || s.StartTimeout <= 0 || s.Limits.Memory < 0 ||
				s.Era == "" || s.Validate == "" || len(s.Roots.URIs) > 0 != (s.Roots.Mode == config.RootsList) && s.Roots.Mode != config.RootsList {
				t.Errorf("server %s: %+v", name, s)
			}
		}
	})
}

// Expanding a text without commands never fails otherwise than by an error, and a text without
// variables does not change. Values are not expanded again, and values of secrets are known.
func FuzzExpand(f *testing.F) {
	for _, text := range []string{"${A}", "a${env:A}${$}{A}", "${A:-${B}", "${secret:a}", "${input:a:-b}", "${file:/none}",
		"${workspaceFolder}${/}${userHome}", "${:-}", "${-:-}", "${env:}", "$${A}}"} {
		f.Add(text, "v${A}")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		if strings.Contains(text, "${exec:") || strings.Contains(text, "${file:") {
			return // not those of the machine
		}
		quoted, err := json.Marshal(text)
		if err != nil {
			return
		}
		file, err := config.Parse([]byte(`{"servers": {"a": {"command": "x", "args": [` + string(quoted) + `]}}}`))
		if err != nil {
			return
		}
		s, err := file.Server("a")
		if err != nil {
			t.Fatal(err)
		}
		secret := false
		e, err := s.Expand(t.Context(), func(name string) (string, bool) {
			secret = secret || strings.HasPrefix(name, "secret:")
			return value, true
		})
		switch {
		case err != nil:
			if !strings.HasPrefix(err.Error(), `server "a": `) {
				t.Errorf("error %q, want the name of the server", err)
			}
		case !strings.Contains(text, "${") && e.Args[0] != text:
			t.Errorf("%q became %q", text, e.Args[0])
		case secret && len(value) >= 4 && !strings.Contains(strings.Join(e.Secrets(), "\n"), value):
			t.Errorf("%q: the secret %q is not in %q", text, value, e.Secrets())
		}
	})
}
