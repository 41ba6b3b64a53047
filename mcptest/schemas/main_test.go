package main

import (
	"bytes"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/internal/specschema"
)

// published returns the official schemas by revision. It skips the test without them.
func published(t *testing.T) map[string][]byte {
	t.Helper()
	dir := mcptest.SchemaDir()
	if dir == "" {
		t.Skip("no schemas found")
	}
	all := map[string][]byte{}
	for _, f := range specschema.Files() {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[f.Revision] = text
	}
	return all
}

// serve serves files as the source of the schemas does, and counts the requests.
func serve(t *testing.T, files map[string][]byte) (url string, requests *int) {
	t.Helper()
	requests = new(int)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*requests++
		revision, isSchema := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/schema/"), "/schema.json")
		if text := files[revision]; isSchema && text != nil {
			_, _ = w.Write(text)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/schema/", requests
}

// cacheIn sets the user's cache directory and returns that of the schemas.
func cacheIn(t *testing.T, dir string) string {
	t.Helper()
	for _, name := range []string{"XDG_CACHE_HOME", "LocalAppData", "HOME"} {
		t.Setenv(name, dir)
	}
	cache, err := specschema.CacheDir()
	if err != nil || !strings.HasPrefix(cache, dir) {
		t.Fatalf("got cache %q, %v, want one in %s", cache, err, dir)
	}
	return cache
}

func TestSchemasAreDownloadedOnceAndFoundByTests(t *testing.T) {
	url, requests := serve(t, published(t))
	cache := cacheIn(t, t.TempDir())
	t.Chdir(t.TempDir())
	t.Setenv("PATCHBAY_SCHEMAS", "")
	if err := run(t.Context(), []string{"-source", url + "none"}, &bytes.Buffer{}); err == nil {
		t.Error("a source without schemas: got no error")
	}
	if got := mcptest.SchemaDir(); got != "" {
		t.Errorf("after a failed download: got directory %q, want none", got)
	}
	*requests = 0
	for _, want := range []string{"downloaded", "present"} {
		var out bytes.Buffer
		if err := run(t.Context(), []string{"-source", url}, &out); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(out.String(), ".json: "+want+"\n"); got != 5 {
			t.Errorf("got\n%swant five files that are %s", out.String(), want)
		}
	}
	if *requests != 5 {
		t.Errorf("got %d requests, want 5", *requests)
	}
	if got := mcptest.SchemaDir(); got != cache {
		t.Errorf("after: got directory %q, want %q", got, cache)
	}
	for _, f := range specschema.Files() {
		info, err := os.Stat(filepath.Join(cache, f.Name()))
		if err != nil || runtime.GOOS != "windows" && info.Mode() != 0o600 {
			t.Errorf("%s: got %v, %v, want mode 0600", f.Name(), info, err)
		}
		if _, err := mcptest.OpenSchema(cache, f.Revision); err != nil {
			t.Error(err)
		}
	}
}

func TestOtherFilesAreRefused(t *testing.T) {
	good := published(t)
	for want, text := range map[string][]byte{
		"schema of revision 2025-06-18: the SHA-256 is ": append(bytes.Clone(good["2025-06-18"]), ' '),
		"got status 404 Not Found, want 200":             nil,
		"more than 4194304 bytes":                        make([]byte, maxSchema+1),
	} {
		files := map[string][]byte{}
		for revision, text := range good {
			files[revision] = text
		}
		files["2025-06-18"] = text
		url, _ := serve(t, files)
		dir := t.TempDir()
		err := run(t.Context(), []string{"-source", url, "-dir", dir}, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
		var names []string
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
			if !d.IsDir() {
				names = append(names, d.Name())
			}
			return nil
		})
		if got := strings.Join(names, " "); got != "2024-11-05.json 2025-03-26.json" {
			t.Errorf("got files %s, want the two before the refused one", got)
		}
	}
}

// A file that was changed after the download is downloaded again.
func TestChangedFilesAreReplaced(t *testing.T) {
	url, requests := serve(t, published(t))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "2025-11-25.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"-source", url, "-dir", dir}, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	if *requests != 5 {
		t.Errorf("got %d requests, want 5", *requests)
	}
	if err := run(t.Context(), []string{"-dir", dir, "extra"}, &bytes.Buffer{}); err == nil {
		t.Error("an argument: got no error")
	}
}
