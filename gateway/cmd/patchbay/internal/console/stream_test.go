package console_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a-h/templ"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/logs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A reader reads the stream of a page.
type reader struct {
	t     *testing.T
	lines *bufio.Scanner
	body  io.Closer
}

// openStream opens the stream of the overview.
func openStream(t *testing.T, s *consoletest.Site, b *http.Client) *reader {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Base+"/stream?page=/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := b.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		t.Fatalf("stream: status %d", res.StatusCode)
	}
	return &reader{t, bufio.NewScanner(res.Body), res.Body}
}

// until reads the fragments up to the first with an ID and a text, and returns their IDs.
func (r *reader) until(id, text string) (ids []string) {
	r.t.Helper()
	for r.lines.Scan() {
		var e struct{ ID, HTML string }
		data, ok := strings.CutPrefix(r.lines.Text(), "data: {")
		if !ok || json.Unmarshal([]byte("{"+data), &e) != nil {
			continue
		}
		ids = append(ids, e.ID)
		if e.ID == id && strings.Contains(e.HTML, text) {
			return ids
		}
	}
	r.t.Fatalf("the stream ended before %s contained %q; got %q", id, text, ids)
	return nil
}

func TestStreamSendsChanges(t *testing.T) {
	mcptest.NoLeaks(t)
	s := consoletest.New(t, nil)
	b := s.Browser()
	r := openStream(t, s, b)
	if got := r.until("server-broken", "not started"); !reflect.DeepEqual(got, []string{"servers", "alert",
		"badge-_2Finbox", "summary", "server-fs", "server-broken"}) {
		t.Errorf("first pass: got %q", got)
	}
	s.Send(b, http.MethodPost, "/servers/restart", url.Values{"server": {"fs"}})
	for _, id := range r.until("server-fs", `>read</a>`) {
		if id == "server-broken" {
			t.Errorf("the stream sent server-broken, which did not change")
		}
	}
	res, text := s.Send(b, http.MethodPost, "/servers/restart", url.Values{"server": {"broken"}}, "X-Console", "1")
	if res.StatusCode < 400 || !strings.Contains(text, "/no/such/program") {
		t.Errorf("restart of a broken server: got %d, %s", res.StatusCode, text)
	}
	r.until("server-broken", "/no/such/program")
	s.Send(b, http.MethodPost, "/logout", url.Values{})
	s.Console.Changed()
	for r.lines.Scan() {
		if r.lines.Text() == "event: end" {
			return
		}
	}
	t.Error("the stream did not end with the login")
}

// The stream of a page reads the values in the query of the page, also when it checks the server.
func TestStreamReadsTheQueryOfItsPage(t *testing.T) {
	mcptest.NoLeaks(t)
	s := consoletest.New(t, func(o *console.Options) {
		o.Authenticate = func(*http.Request) (*mcp.Principal, page.Role, error) {
			return &mcp.Principal{Subject: "eve"}, page.RoleOperator, nil
		}
		o.Opens = func(_ *mcp.Principal, server string) bool { return server != "broken" }
		o.Logs = &logs.Book{}
	})
	for shown, want := range map[string]string{"/logs?server=broken": `there is no server \"broken\"`,
		"/logs?server=fs": "event: pass"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			s.Base+"/stream?page="+url.QueryEscape(shown), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.Stranger().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(res.Body)
		isEvent := func(line string) bool {
			return strings.HasPrefix(line, "event: pass") || strings.HasPrefix(line, "data: ")
		}
		for lines.Scan() && !isEvent(lines.Text()) {
		}
		if !strings.Contains(lines.Text(), want) {
			t.Errorf("%s: got the line %q, want %q: %v", shown, lines.Text(), want, lines.Err())
		}
		_ = res.Body.Close()
	}
}

func TestStreamsAreLimited(t *testing.T) {
	mcptest.NoLeaks(t)
	s := consoletest.New(t, nil)
	b := s.Browser()
	var first *reader
	for range 16 {
		first = openStream(t, s, b)
	}
	if res, _ := s.Send(b, http.MethodGet, "/stream?page=/", nil); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("stream 17: got %d, want 503", res.StatusCode)
	}
	_ = first.body.Close()
	for {
		res, _ := s.Send(b, http.MethodGet, "/stream?page=/", nil)
		if res.StatusCode == http.StatusOK {
			break
		}
	}
	for _, page := range []string{"", "/none", "//evil.example/", "/login/x"} {
		res, _ := s.Send(b, http.MethodGet, "/stream?page="+url.QueryEscape(page), nil)
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("page %q: got %d, want 400", page, res.StatusCode)
		}
	}
	openStreamOfOldAssets(t, s, b)
}

// openStreamOfOldAssets checks that a page of an earlier version is loaded again.
func openStreamOfOldAssets(t *testing.T, s *consoletest.Site, b *http.Client) {
	t.Helper()
	res, err := b.Get(s.Base + "/stream?page=/&v=old")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err != nil || !strings.HasPrefix(string(text), "event: reload\n") {
		t.Errorf("old assets: got %s, %v, want reload", text, err)
	}
}

func TestListsAppendAndRemoveItems(t *testing.T) {
	mcptest.NoLeaks(t)
	s := consoletest.New(t, nil)
	got, err := s.Console.Events([]string{"a", "b"}, []string{"a", "b"}, []string{"b", "c"}, nil)
	want := [][]string{{"keep list", "prepend a", "prepend b"}, nil, {"prepend c", "remove a"}, {"remove b", "remove c"}}
	if len(got) == 4 && len(got[3]) == 2 && got[3][0] == "remove c" { // in the order of a map
		got[3][0], got[3][1] = got[3][1], got[3][0]
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// slowWriter is a browser that takes three seconds to read.
type slowWriter struct{ *httptest.ResponseRecorder }

func (w slowWriter) Write(b []byte) (int, error) {
	time.Sleep(3 * time.Second)
	return w.ResponseRecorder.Write(b)
}

// answers is an admin API without servers.
type answers struct{}

func (answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(`{"servers": {}}`)), Request: r}, nil
}

func TestSlowReaderLoadsThePageAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := console.New(&console.Options{Addr: "127.0.0.1:0",
			Admin: func(*mcp.Principal) *http.Client { return &http.Client{Transport: answers{}} },
			Authenticate: func(*http.Request) (*mcp.Principal, page.Role, error) {
				return nil, page.RoleViewer, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		w := slowWriter{httptest.NewRecorder()}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/stream?page=/", http.NoBody)
		began := time.Now()
		c.ServeHTTP(w, r) // returns although the browser does not leave
		if text := w.Body.String(); !strings.HasSuffix(text, "event: reload\ndata:\n\n") || time.Since(began) > 7*time.Second {
			t.Errorf("got %q after %v, want reload last", text, time.Since(began))
		}
	})
}

var (
	inlineCode = regexp.MustCompile(`(?i)\son[a-z]+\s*=|\sstyle\s*=|<style|javascript:|<script(>|[^>]*[^>]>[^<])`)
	otherSites = regexp.MustCompile(`(?i)(src|href|action)\s*=\s*"?(https?:)?//`)
	parsers    = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|DOMParser|createContextualFragment|` +
		`document\.write|setHTMLUnsafe|createPolicy`)
	// unsafeTypes are the types and functions whose values reach a page without an escape.
	unsafeTypes = regexp.MustCompile(`template\.(HTML|JS|CSS|URL|Srcset)|` +
		`templ\.(Raw|Safe|Unsafe|JS|FromGoHTML|ToGoHTML|ComponentScript|ComponentFunc|ComponentCSSClass|` +
		`Attributes|Attributer|OrderedAttributes|WithNonce)`)
	// unsafeTemplates are the parts of templates that are no escaped text: attributes whose names are data, and
	// styles and scripts.
	unsafeTemplates = regexp.MustCompile(`\{\s*[^{}]+\.\.\.\s*\}|(?im:^\s*(css|script)\s+\w+\s*\()|(?i:\bsrcdoc\b)`)
	evaluation      = regexp.MustCompile(`\beval\b|new Function|setTimeout\(\s*["'` + "`" + `]|import\(`)
)

// The rules for code that escapes nothing match each form in which templ offers it.
func TestUnsafeTemplatesAreFound(t *testing.T) {
	for text, want := range map[string]bool{
		"var raw = templ.ComponentFunc(f)": true, "func f() templ.Attributes {": true,
		"a templ.OrderedAttributes": true,
		"var a templ.Attributer":    true, "<p { all... }>": true, "<p {attributes()...}>": true,
		"<p\n\t{ p.Attributes(x)... }\n>": true,
		"css red(x string) {":             true, "\tcss red() {": true, "script run(x string) {": true,
		`<iframe srcdoc={ x }>`: true, `<iframe SRCDOC="x">`: true,
		`<p>{ cmp.Or(all...) }</p>`: false, `<p class={ "css " + x }>css (style)</p>`: false,
		"<p>{ x } more...</p>":        false,
		"func f(c templ.Component) {": false,
	} {
		if got := unsafeTypes.MatchString(text) || unsafeTemplates.MatchString(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

// A refused URL does not end the updates: trust.js accepts the address that templ writes for it, and no other
// address that a page does not contain.
func TestRefusedURLsKeepTheUpdates(t *testing.T) {
	script, err := os.ReadFile("assets/trust.js")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`const address = /(.*)/i;`).FindSubmatch(script)
	if found == nil || !strings.Contains(string(script), "!address.test(value)") {
		t.Fatal("trust.js does not test addresses")
	}
	address := regexp.MustCompile("(?i)" + string(found[1]))
	for text, want := range map[string]bool{
		string(templ.URL("javascript:alert(1)")): true, string(templ.URL("file:///etc/passwd")): true,
		"https://a.example/": true, "/apps?load=1": true, "": true, "javascript:alert(1)": false, "about:blank": false,
		"about:invalid": false, "about:invalid#TemplFailedSanitizationURLx": false, "data:text/html,x": false,
		"tel:1": false, "ftp://a.example": false, "file:///x": false,
	} {
		if got := address.MatchString(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

// TestConsoleAssets checks the rules for browser code: small files, a single parser of HTML, and nothing
// inline that the Content-Security-Policy forbids.
func TestConsoleAssets(t *testing.T) {
	lines, size := 0, 0
	check := func(name string, text []byte) {
		if path.Ext(name) != ".html" && path.Ext(name) != ".templ" { // browsers load no templates
			size += len(text)
		}
		source := string(text)
		switch ext := path.Ext(name); {
		case ext == ".js":
			n := strings.Count(source, "\n")
			if lines += n; n > 300 {
				t.Errorf("%s has %d lines, want at most 300", name, n)
			}
			if filepath.Base(name) != "trust.js" && parsers.MatchString(source) {
				t.Errorf("%s parses HTML: %q; only trust.js may", name, parsers.FindString(source))
			}
			if evaluation.MatchString(source) {
				t.Errorf("%s evaluates text as code: %q", name, evaluation.FindString(source))
			}
		case ext == ".html" || ext == ".templ":
			if found := inlineCode.FindString(source); found != "" {
				t.Errorf("%s contains inline code: %q", name, found)
			}
			if found := unsafeTemplates.FindString(source); found != "" {
				t.Errorf("%s contains %q", name, found)
			}
			if found := otherSites.FindString(source); found != "" {
				t.Errorf("%s loads from another site: %q", name, found)
			}
		case ext != ".css" && ext != ".svg":
			t.Errorf("unexpected file %s", name)
		}
	}
	err := filepath.WalkDir(".", func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if path.Ext(name) != ".go" {
			check(name, text)
		}
		isSource := !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(name, "_templ.go")
		if found := unsafeTypes.Find(text); found != nil && isSource {
			t.Errorf("%s contains %s", name, found)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if lines > 1500 || size > 150<<10 || lines == 0 {
		t.Errorf("got %d lines of scripts and %d bytes, want at most 1,500 and 150 KiB", lines, size)
	}
}
