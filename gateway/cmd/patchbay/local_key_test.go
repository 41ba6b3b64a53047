package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

var (
	printedURL = regexp.MustCompile(`http://127\.0\.0\.1:\d+/mcp`)
	printedKey = regexp.MustCompile(`Authorization: Bearer ([a-z2-7]{32})|"Authorization":"Bearer ([a-z2-7]{32})"`)
)

// readKey reads the output of a server over HTTP until the server has printed its URL and its key, if it has a key.
func readKey(p *process, withKey bool) (url, key string) {
	for url == "" || withKey && key == "" {
		line := p.readLine()
		if m := printedURL.FindString(line); m != "" {
			url = m
		}
		if m := printedKey.FindStringSubmatch(line); m != nil {
			key = m[1] + m[2]
		}
	}
	return url, key
}

func tryAdd(t *testing.T, url, revision, authorization string) error {
	t.Helper()
	header := http.Header{}
	if authorization != "" {
		header.Set("Authorization", authorization)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	c, err := mcp.Connect(ctx, mcphttp.NewTransport(url, &mcphttp.TransportOptions{Header: header}),
		&mcp.ClientOptions{Revision: revision})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.CallTool(ctx, "add", map[string]int{"a": 1, "b": 2})
	return err
}

// Servers over HTTP that use a login of the user or run the user's command require the key of the user.
func TestServersOverHTTPNeedAKey(t *testing.T) {
	freshState(t)
	dir := t.TempDir()
	demo := []string{"--", built, "serve", "--stdio", "--tasks", "memory"}
	recorded := filepath.Join(dir, "a.jsonl")
	demoSession(t, mcp.Command(built, append([]string{"record", recorded}, demo...)...), mcptest.Modern)
	first := ""
	for name, args := range map[string][]string{
		"serve":  {"serve", "--addr", "127.0.0.1:0", "--tasks", "memory"},
		"bridge": append([]string{"bridge", "--http", ":0"}, demo...),
		"json":   append([]string{"bridge", "--json", "--http", ":0"}, demo...),
		"record": append([]string{"record", filepath.Join(dir, "b.jsonl"), "--http", ":0"}, demo...),
		"mock":   {"mock", recorded, "--http", ":0"},
	} {
		t.Run(name, func(t *testing.T) {
			url, key := readKey(start(t, args...), true)
			if first == "" {
				first = key
			}
			if key != first {
				t.Errorf("the key is %q, want that of the other servers, %q", key, first)
			}
			for _, revision := range []string{"2024-11-05", "2025-11-25", mcptest.Modern} {
				if name == "mock" && revision != mcptest.Modern {
					continue
				}
				if err := tryAdd(t, url, revision, "Bearer "+key); err != nil {
					t.Errorf("%s with the key: %v", revision, err)
				}
				for _, wrong := range []string{"", "Bearer", "Bearer x", "Basic " + key, key, "Bearer " + key + "x"} {
					if err := tryAdd(t, url, revision, wrong); err == nil {
						t.Errorf("%s with the header %q: served", revision, wrong)
					}
				}
			}
			res, err := http.Post(url, "application/json", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != http.StatusUnauthorized || res.Header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("without a key: status %d, %q, want 401", res.StatusCode, res.Header.Get("WWW-Authenticate"))
			}
		})
		t.Run(name+" without a key", func(t *testing.T) {
			words := append([]string{args[0], "--insecure-no-auth"}, args[1:]...)
			url, _ := readKey(start(t, words...), false)
			if err := tryAdd(t, url, mcptest.Modern, ""); err != nil {
				t.Error(err)
			}
		})
	}
	path := filepath.Join(os.Getenv("PATCHBAY_STATE_DIR"), "serve", "key")
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v, want a file for the user only", info, err)
	}
}

// The printed configuration and the printed command work in a client without changes.
func TestServePrintsItsKey(t *testing.T) {
	freshState(t)
	p := start(t, "serve", "--addr", "127.0.0.1:0", "--tasks", "memory")
	text := ""
	for !strings.HasSuffix(text, "}\n}\n") {
		text += p.readLine() + "\n"
	}
	url, key := printedURL.FindString(text), printedKey.FindStringSubmatch(text)[1]
	var c struct {
		Servers map[string]struct {
			URL     string
			Headers map[string]string
		} `json:"mcpServers"`
	}
	if err := json.Unmarshal([]byte(text[strings.Index(text, "{\n"):]), &c); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if s := c.Servers["patchbay-demo"]; s.URL != url || s.Headers["Authorization"] != "Bearer "+key {
		t.Errorf("the configuration is %+v, want %s and the key", s, url)
	}
	if got := mustRun(t, "call", url, "add", "a=1", "b=2", "--header", "Authorization: Bearer "+key); got != "3" {
		t.Errorf("got %q, want 3", got)
	}
	if !strings.Contains(text, "call "+url+` add a=1 b=2 --header "Authorization: Bearer `+key+`"`) {
		t.Errorf("no command to try: %s", text)
	}
	_, stderr, status := run(t, "serve", "--insecure-no-auth", "--addr", "0.0.0.0:0", "--tasks", "memory")
	if status != 2 || !strings.Contains(stderr, "loopback") {
		t.Errorf("--insecure-no-auth for other machines: %d, %s", status, stderr)
	}
}
