package config_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/config"
)

func TestOnlyProjectFilesNeedTrust(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(config.PathEnv, "")
	entry := []byte(`{"servers": {"a": {"command": "./run", "args": ["1"]}}}`)
	if err := os.WriteFile(".mcp.json", entry, 0o600); err != nil {
		t.Fatal(err)
	}
	full, err := filepath.Abs(".mcp.json")
	if err != nil {
		t.Fatal(err)
	}
	load := func(path, env string) *config.Server {
		t.Helper()
		t.Setenv(config.PathEnv, env)
		configs, err := config.LoadAll(path)
		if err != nil {
			t.Fatal(err)
		}
		s, err := configs[0].Server("a")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	store := &config.TrustStore{Dir: filepath.Join(t.TempDir(), "trusted")}
	for _, c := range []struct {
		path, env string
		project   bool
	}{{"", "", true}, {"", ".mcp.json", true}, {"", full, false}, {".mcp.json", "", false}, {full, "", false}} {
		s := load(c.path, c.env)
		if s.Project != c.project || store.NeedsTrust(s) != c.project {
			t.Errorf("path %q, environment %q: Project %t, NeedsTrust %t, want %t", c.path, c.env, s.Project,
				store.NeedsTrust(s), c.project)
		}
	}
}

func TestTrustIsForOneEntryAsItIs(t *testing.T) {
	store := &config.TrustStore{Dir: filepath.Join(t.TempDir(), "trusted")}
	server := func() *config.Server {
		return &config.Server{Name: "a", Project: true, Type: config.TypeStdio, Command: "./run", Args: []string{"x y", "z"},
			Env: map[string]string{"A": "1"}, Dir: "sub", Header: map[string]string{"H": "1"},
			Settings: json.RawMessage(`{"sandbox":{}}`)}
	}
	s := server()
	if err := store.Trust(s); err != nil {
		t.Fatal(err)
	}
	if store.NeedsTrust(server()) {
		t.Error("an equal entry needs trust")
	}
	for name, change := range map[string]func(s *config.Server){
		"name":        func(s *config.Server) { s.Name = "b" },
		"type":        func(s *config.Server) { s.Type = config.TypeHTTP },
		"command":     func(s *config.Server) { s.Command = "./other" },
		"arguments":   func(s *config.Server) { s.Args = []string{"x", "y z"} },
		"variable":    func(s *config.Server) { s.Env["B"] = "" },
		"its value":   func(s *config.Server) { s.Env["A"] = "2" },
		"directory":   func(s *config.Server) { s.Dir = "" },
		"URL":         func(s *config.Server) { s.URL = "https://example.com" },
		"header":      func(s *config.Server) { s.Header["I"] = "" },
		"sandbox":     func(s *config.Server) { s.Settings = json.RawMessage(`{"sandbox":{"network":"host"}}`) },
		"settings":    func(s *config.Server) { s.Settings = nil },
		"header text": func(s *config.Server) { s.Header["H"] = "${HOME}" },
	} {
		changed := server()
		if change(changed); !store.NeedsTrust(changed) {
			t.Errorf("with another %s the entry is still trusted", name)
		}
	}
	if err := store.Revoke(s); err != nil {
		t.Fatal(err)
	}
	if !store.NeedsTrust(s) {
		t.Error("the entry is trusted after Revoke")
	}
	if err := store.Revoke(s); err != nil {
		t.Errorf("Revoke without a record: %v", err)
	}
}
