package root

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

var consoleURL = regexp.MustCompile(`http://(127\.0\.0\.1|[a-z2-7]+\.localhost):\d+/login#t=[0-9a-f]+`)

// A urlWriter is standard error. It sends each URL of a console to found.
type urlWriter struct {
	cmdtest.Buffer
	found chan string
}

func (w *urlWriter) Write(b []byte) (int, error) {
	for _, u := range consoleURL.FindAllString(string(b), -1) {
		w.found <- u
	}
	return w.Buffer.Write(b)
}

// withConsole runs patchbay console, calls visit with its URLs, and interrupts the command.
func withConsole(
	t *testing.T, typed string, prepare func(*cmdutil.Factory), visit func(urls <-chan string), args ...string,
) outcome {
	t.Helper()
	return withConsoleOf(t, typed, prepare, visit, append([]string{"console"}, args...)...)
}

// withConsoleOf is withConsole for any command that opens a console.
func withConsoleOf(
	t *testing.T, typed string, prepare func(*cmdutil.Factory), visit func(urls <-chan string), args ...string,
) outcome {
	t.Helper()
	mcptest.NoLeaks(t)
	freshVault(t)
	var stdout bytes.Buffer
	stderr := &urlWriter{found: make(chan string, 16)}
	p := newRun(strings.NewReader(typed), &stdout, stderr)
	if prepare != nil {
		prepare(p)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	status := make(chan int, 1)
	go func() {
		status <- runCommandLine(ctx, p, args)
		close(stderr.found)
	}()
	visit(stderr.found)
	cancel()
	return outcome{<-status, stdout.String(), stderr.String()}
}

// overview logs in with the URL of a console, and returns its first page.
func overview(t *testing.T, link string) string {
	t.Helper()
	return withLogin(t, link, nil)
}

// withLogin is overview. It calls visit, which may be nil, with the browser and the URL without a
// path.
func withLogin(t *testing.T, link string, visit func(browser *http.Client, base string)) string {
	t.Helper()
	base, token, _ := strings.Cut(link, "/login#t=")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	browser := &http.Client{Jar: jar, Transport: transport}
	res, err := browser.PostForm(base+"/login", url.Values{"token": {token}})
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close() // the first page, which is Explore for a single target
	if res, err = browser.Get(base + "/"); err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK || res.Request.URL.Path != "/" {
		t.Fatalf("login: got %d at %s, %v", res.StatusCode, res.Request.URL, err)
	}
	if visit != nil {
		visit(browser, base)
	}
	return string(page)
}

// The console of a gateway shows what its servers print, and the log of the gateway.
func TestGatewayConsoleShowsLogs(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("uses sh")
	}
	path := t.TempDir() + "/mcp.json"
	writeFile(t, path, `{"mcpServers": {"noisy": {"command": "sh", "args": ["-c", "echo hello >&2; cat >/dev/null"]}}}`)
	withConsoleOf(t, "", func(p *cmdutil.Factory) { p.IO.Err.Terminal = true }, func(urls <-chan string) {
		withLogin(t, <-urls, func(browser *http.Client, base string) {
			started := make(chan struct{})
			go func() { // ends with the command
				defer close(started)
				if res, err := browser.PostForm(base+"/servers/restart", url.Values{"server": {"noisy"}}); err == nil {
					_ = res.Body.Close()
				}
			}()
			consoletest.Await(t, "hello", func() string {
				res, err := browser.Get(base + "/logs?source=stderr")
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				text, err := io.ReadAll(res.Body)
				if err != nil || res.StatusCode != http.StatusOK {
					t.Fatalf("logs: got %d, %v", res.StatusCode, err)
				}
				return string(text)
			})
			if res, err := browser.PostForm(base+"/servers/stop", url.Values{"server": {"noisy"}}); err == nil {
				_ = res.Body.Close()
			}
			<-started
		})
	}, "gateway", "--config", path, "--addr", "127.0.0.1:0", "--console=127.0.0.1:0")
}

// awaitRun runs a tool in Explore and waits until the page of the run contains all texts.
func awaitRun(t *testing.T, browser *http.Client, base, server, tool, arguments string, want ...string) {
	t.Helper()
	at := base + "/explore?" + url.Values{"server": {server}, "kind": {"tools"}, "name": {tool}}.Encode()
	consoletest.Await(t, `id="editor"`, func() string { return seePage(t, browser, at) })
	res, err := browser.PostForm(base+"/explore/run", url.Values{"do": {"run"}, "mode": {"json"}, "at-server": {server},
		"at-kind": {"tools"}, "at-name": {tool}, "at-timeout": {"60"}, "text": {arguments}})
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	for _, text := range want {
		consoletest.Await(t, text, func() string { return seePage(t, browser, res.Request.URL.String()) })
	}
}

// seePage returns the text of a page.
func seePage(t *testing.T, browser *http.Client, address string) string {
	t.Helper()
	res, err := browser.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: got %d, %v", address, res.StatusCode, err)
	}
	return string(text)
}

// The file of --answers answers the questions of runs, which show that no person answered.
func TestConsoleAnswersFromAFile(t *testing.T) {
	file := t.TempDir() + "/answers.json"
	writeFile(t, file, `{"elicitation": [{"content": {"name": "Ann"}}],
		"sampling": [{"message": "story", "text": "A tale."}, {"action": "decline"}]}`)
	withConsole(t, "", nil, func(urls <-chan string) {
		withLogin(t, <-urls, func(browser *http.Client, base string) {
			for _, test := range []struct{ tool, arguments, want, answer string }{
				{"greet", `{}`, "Hello, Ann", "accepted"},
				{"summarize", `{"text": "a story"}`, "A tale.", "accepted"},
				{"summarize", `{"text": "a plan"}`, "refused the sampling request", "declined"},
			} {
				awaitRun(t, browser, base, "demo", test.tool, test.arguments, test.want,
					test.answer+" by the file of --answers")
			}
		})
	}, "--addr", "127.0.0.1:0", "--answers", file, "--config", writeEmptyConfig(t))
	o := patchbay(t, "", "console", "--addr", "127.0.0.1:0", "--answers", file+".none", "--", "true")
	if o.status != exit.Usage || !strings.Contains(o.stderr, "answers.json.none") {
		t.Errorf("a file that does not exist: got %d, %s", o.status, o.stderr)
	}
}

// The command of --sample-with answers in the console of a gateway, and nowhere else in a gateway.
func TestGatewayConsoleAnswersWithACommand(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/mcp.json"
	writeFile(t, path, fmt.Sprintf(`{"mcpServers": {"demo": {"command": %q, "args": ["serve", "--stdio"],
		"env": {%q: "1"}}}}`, exe, mainEnv))
	withConsoleOf(t, "", func(p *cmdutil.Factory) { p.IO.Err.Terminal = true }, func(urls <-chan string) {
		withLogin(t, <-urls, func(browser *http.Client, base string) {
			awaitRun(t, browser, base, "demo", "summarize", `{"text": "a story"}`, "Answer with go")
		})
	}, "gateway", "--config", path, "--addr", "127.0.0.1:0", "--console=127.0.0.1:0", "--sample-with", "go version")
	for flags, want := range map[string]string{
		"--sample-with go":                     "add --console",
		"--sample-with go --stdio":             "are for HTTP",
		"--answers " + path + " --console=:0":  "do not apply to gateway",
		"--sample-with /no/such --console=:0":  "--sample-with: ",
		"--root . --sample-with go --console=": "do not apply to gateway",
	} {
		o := patchbay(t, "", append([]string{"gateway", "--config", path}, strings.Fields(flags)...)...)
		if o.status != exit.Usage || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: got %d, %s, want %d, %s", flags, o.status, o.stderr, exit.Usage, want)
		}
	}
}

// The first command of a new user shows the demo beside the servers of the configuration, which it
// does not start, and leaves out servers of a project that are not trusted.
func TestConsoleShowsTheConfigurationAndTheDemo(t *testing.T) {
	p := newHostileProject(t)
	writeProjectFile(t, "config/patchbay/mcp.json", `{"mcpServers": {"own": {"command": "touch", "args": ["`+p.mark+`"]}}}`)
	o := withConsole(t, "", nil, func(urls <-chan string) {
		page := overview(t, <-urls)
		for id, want := range map[string]bool{"server-own": true, "server-demo": true, "server-run": false, "server-send": false} {
			if got := strings.Contains(page, `id="`+id+`"`); got != want {
				t.Errorf("the page contains %s: %t, want %t", id, got, want)
			}
		}
	}, "--addr", "127.0.0.1:0")
	if o.status != exit.OK || o.stdout != "" || !strings.Contains(o.stderr, `run "patchbay trust NAME"`) {
		t.Errorf("got %d, %q, %s, want %d and a note about trust", o.status, o.stdout, o.stderr, exit.OK)
	}
	if p.used() {
		t.Error("a server was started")
	}
	if o := patchbay(t, "", "trust", "send", "--yes"); o.status != exit.OK {
		t.Fatalf("trust: got %d, %s", o.status, o.stderr)
	}
	withConsole(t, "", nil, func(urls <-chan string) {
		if page := overview(t, <-urls); !strings.Contains(page, `id="server-send"`) {
			t.Errorf("after trust: the page lacks the server: %s", page)
		}
	}, "--addr", "127.0.0.1:0")
}

// Settings lists the configuration files and their servers. For targets, it says why there are none.
func TestConsoleShowsItsFiles(t *testing.T) {
	path := t.TempDir() + "/mcp.json"
	writeFile(t, path, `{"mcpServers": {"own": {"command": "true", "env": {"TOKEN": "s3cret"}}}}`)
	for args, want := range map[string][]string{
		"--config " + path: {path, `1 server: <span class="data">own</span>`, "patchbay gateway --console",
			"/settings/reload"},
		"-- true": {"reads no configuration file", "/server?server=true&amp;tab=configuration"},
	} {
		withConsole(t, "", nil, func(urls <-chan string) {
			withLogin(t, <-urls, func(browser *http.Client, base string) {
				text := seePage(t, browser, base+"/settings")
				for _, w := range want {
					if !strings.Contains(text, w) {
						t.Errorf("%s: no %q in %s", args, w, text)
					}
				}
				if strings.Contains(text, "s3cret") || strings.Contains(text, "Effective settings") {
					t.Errorf("%s: got a text or settings: %s", args, text)
				}
			})
		}, append([]string{"--addr", "127.0.0.1:0"}, strings.Fields(args)...)...)
	}
}

// Targets start at once, and are the only servers.
func TestConsoleStartsItsTargets(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("uses sh")
	}
	o := withConsole(t, "", nil, func(urls <-chan string) {
		page := overview(t, <-urls)
		if strings.Count(page, "data-row") != 1 || !strings.Contains(page, `id="server-reader"`) {
			t.Errorf("got %s, want the target only", page)
		}
	}, "--addr", "127.0.0.1:0", "--", "sh", "-c", "cat >/dev/null", "reader")
	if o.status != exit.OK {
		t.Errorf("got %d, %s, want %d", o.status, o.stderr, exit.OK)
	}
}

// A browser opens only for a user at a terminal who sees it. Enter prints another URL.
func TestConsoleOpensABrowserOnlyForItsUser(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*cmdutil.Factory)
		args    []string
		opens   bool
		urls    int
	}{
		"terminal":             {func(*cmdutil.Factory) {}, nil, true, 3},
		"--no-browser":         {func(*cmdutil.Factory) {}, []string{"--no-browser"}, false, 3},
		"no display":           {func(p *cmdutil.Factory) { p.Login.Headless = true }, nil, false, 3},
		"input from a program": {func(p *cmdutil.Factory) { p.IO.Interactive = false }, nil, false, 1},
		"--no-input":           {func(*cmdutil.Factory) {}, []string{"--no-input"}, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			opened := make(chan string, 1)
			o := withConsole(t, "\n\n", func(p *cmdutil.Factory) {
				p.IO.Interactive, p.Login.Headless = true, false
				p.Ask.Open = func(_ context.Context, page string) error { opened <- page; return nil }
				test.prepare(p)
			}, func(urls <-chan string) {
				seen := map[string]bool{}
				for range test.urls {
					seen[<-urls] = true
				}
				if len(seen) != test.urls {
					t.Errorf("got %d different URLs, want %d", len(seen), test.urls)
				}
				if test.opens {
					if page := <-opened; !seen[page] {
						t.Errorf("opened %s, want a printed URL", page)
					}
				}
			}, append(test.args, "--addr", "127.0.0.1:0", "--config", writeEmptyConfig(t))...)
			if len(opened) > 0 {
				t.Errorf("opened %s, want no page", <-opened)
			}
			if o.stdout != "" || o.status != exit.OK {
				t.Errorf("got %d, standard output %q, want %d and none", o.status, o.stdout, exit.OK)
			}
		})
	}
}

func writeEmptyConfig(t *testing.T) string {
	t.Helper()
	path := t.TempDir() + "/mcp.json"
	writeFile(t, path, `{"mcpServers": {}}`)
	return path
}

// Without --addr another port is used if that of the default is taken; a given port must be free.
func TestConsoleAddress(t *testing.T) {
	config := writeEmptyConfig(t)
	var listen net.ListenConfig
	if l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:6280"); err == nil { // or another program has it
		defer l.Close()
	}
	withConsole(t, "", nil, func(urls <-chan string) {
		if link := <-urls; strings.Contains(link, ":6280/") {
			t.Errorf("got %s, want another port", link)
		}
	}, "--config", config)
	for addr, want := range map[string]string{"127.0.0.1:6280": "use another address for the console",
		"0.0.0.0:0": "must be a loopback address", "6280": "must be host:port"} {
		o := withConsole(t, "", nil, func(urls <-chan string) {
			if link, ok := <-urls; ok {
				t.Errorf("--addr %s: serves at %s", addr, link)
			}
		}, "--config", config, "--addr", addr)
		if o.status != exit.Failure || !strings.Contains(o.stderr, want) {
			t.Errorf("--addr %s: got %d, %s, want %d, %s", addr, o.status, o.stderr, exit.Failure, want)
		}
	}
}

func TestConsoleRefusesOtherTargets(t *testing.T) {
	for line, want := range map[string]string{
		"@ http://127.0.0.1":                 "must be the URL or name of one server",
		"none":                               `unknown server "none"`,
		"x -- true":                          `unexpected argument "x"`,
		"--":                                 "missing command after --",
		"--env A=b":                          "are for one TARGET",
		"--header A:b http://a/mcp http://b": "are for one TARGET",
		"--config /no/such/file":             "does not exist",
	} {
		o := patchbay(t, "", append([]string{"console", "--addr", "127.0.0.1:0"}, strings.Fields(line)...)...)
		if o.status != exit.Usage || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: got %d, %s, want %d, %s", line, o.status, o.stderr, exit.Usage, want)
		}
	}
}

// The flag --capture overrides the setting capture. Settings shows the effective value, and
// Traffic the recorded traffic.
func TestGatewayRecordsTraffic(t *testing.T) {
	for name, test := range map[string]struct{ setting, flag, want string }{
		"default": {"", "", "summaries"},
		"setting": {`"capture": "off"`, "", "off"},
		"flag":    {`"capture": "off"`, "always", "always"},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir() + "/mcp.json"
			writeFile(t, path, `{"mcpServers": {"a": {"command": "true"}}, "patchbay": {`+test.setting+`}}`)
			withConsoleOf(t, "", func(p *cmdutil.Factory) { p.IO.Err.Terminal = true }, func(urls <-chan string) {
				withLogin(t, <-urls, func(browser *http.Client, base string) {
					row := `/capture</td><td class="data">` + test.want + `</td>`
					if text := seePage(t, browser, base+"/settings"); !strings.Contains(text, row) {
						t.Errorf("the settings lack capture %s:\n%s", test.want, text)
					}
					isRecorded := strings.Contains(seePage(t, browser, base+"/traffic"), "/traffic/export")
					if isRecorded != (test.want != "off") {
						t.Errorf("the page shows recorded traffic: %t", isRecorded)
					}
				})
			}, "gateway", "--config", path, "--addr", "127.0.0.1:0", "--console=127.0.0.1:0", "--capture="+test.flag)
		})
	}
	path := t.TempDir() + "/mcp.json"
	writeFile(t, path, `{"mcpServers": {"a": {"command": "true"}}}`)
	o := patchbay(t, "", "gateway", "--config", path, "--capture", "some")
	if o.status != exit.Usage || !strings.Contains(o.stderr, "must be off, summaries or always") {
		t.Errorf("--capture some: got %d, %s", o.status, o.stderr)
	}
}
