package conformance_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// needBrowser returns the path of a Chromium, and skips the test where there is none. In CI that is a failure.
func needBrowser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if binary, err := exec.LookPath(name); err == nil {
			return binary
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("there is no Chromium: apt-get install chromium")
	}
	t.Skip("there is no Chromium: the pages of a login are not looked at; conformance/run installs it")
	return ""
}

// startBrowser starts Chromium and gives a context in which tabs are opened; it ends with the test.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	flags := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(needBrowser(t)),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(time.Minute), // a machine that does much else starts it slowly
		chromedp.Flag("headless", true),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		// Nothing but what the tests serve is there to be reached.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE localhost , EXCLUDE 127.0.0.1"),
	}
	for _, flag := range []string{"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "disable-dev-shm-usage", "hide-scrollbars"} {
		flags = append(flags, chromedp.Flag(flag, true))
	}
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), flags...)
	browser, stop := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		stop()
		cancel()
	})
	if err := chromedp.Do(browser); err != nil {
		t.Fatalf("Chromium does not start: %v", err)
	}
	return browser
}

// A tab is a page in a browser profile of its own: it shares cookies with no other one.
type tab struct {
	t   *testing.T
	ctx context.Context
}

// newTab opens a tab.
func newTab(t *testing.T, browser context.Context) *tab {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	if err := chromedp.Do(ctx); err != nil {
		closeTab()
		t.Fatalf("open a tab: %v", err)
	}
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	t.Cleanup(func() {
		cancel()
		closeTab()
	})
	return &tab{t, limited}
}

func (p *tab) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatalf("%s: %v\nat %s\n%s", what, err, p.location(), p.text())
	}
}

func (p *tab) open(url string) {
	p.t.Helper()
	p.do("open "+url, chromedp.Navigate(url))
}

// click presses what a selector names.
func (p *tab) click(selector string) {
	p.t.Helper()
	p.do("click "+selector, chromedp.Click(chromedp.CSS(selector)))
}

// enter types into a field as a person does.
func (p *tab) enter(selector, value string) {
	p.t.Helper()
	p.do("enter "+selector, chromedp.Clear(chromedp.CSS(selector)), chromedp.SendKeys(chromedp.CSS(selector), value))
}

// see waits until the page shows a text, whatever its case.
func (p *tab) see(text string) {
	p.t.Helper()
	p.await("see "+text, fmt.Sprintf(`document.readyState === "complete" && document.body.innerText.toLowerCase().includes(%s)`,
		strconv.Quote(strings.ToLower(text))))
}

// await waits until a script is true, over any number of pages.
func (p *tab) await(what, script string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 20*time.Second)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		// An error is a page that is being left.
		if yes, err := chromedp.Run(ctx, chromedp.Evaluate[bool](script)); err == nil && yes {
			return
		}
		select {
		case <-ctx.Done():
			p.t.Fatalf("%s: never\nat %s\n%s", what, p.location(), p.text())
		case <-again.C:
		}
	}
}

// location and text are for messages, too: what goes wrong is what they give.
func (p *tab) location() string { return p.read(chromedp.Location()) }

func (p *tab) text() string { return p.read(chromedp.Evaluate[string](`document.body.innerText`)) }

func (p *tab) read(what chromedp.Action[string]) string {
	text, err := chromedp.Run(p.ctx, what)
	if err != nil {
		return err.Error()
	}
	return text
}

// A screen is what a picture is taken of.
type screen struct {
	name          string
	width, height int64
	scheme        string
	options       []chromedp.EmulateViewportOption
}

var (
	phone   = []chromedp.EmulateViewportOption{chromedp.EmulateMobile, chromedp.EmulatePortrait, chromedp.EmulateScale(2)}
	screens = []screen{
		{"desktop", 1280, 800, "light", nil},
		{"phone", 390, 844, "light", phone},
		{"phone-dark", 390, 844, "dark", phone},
	}
)

// shoot takes pictures of the page, on a wide screen and a phone, light and dark, and leaves it as it was.
func (p *tab) shoot(name string) {
	p.t.Helper()
	dir := os.Getenv("PATCHBAY_SCREENSHOTS")
	if dir == "" {
		dir = p.t.ArtifactDir()
	}
	for _, s := range screens {
		p.do("show "+name+" on a "+s.name, chromedp.EmulateViewport(s.width, s.height, s.options...),
			func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
				_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
					Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: s.scheme}},
				})
				return chromedp.Void{}, err
			})
		sideways := chromedp.Evaluate[bool](`document.documentElement.scrollWidth > document.documentElement.clientWidth`)
		if must(chromedp.Run(p.ctx, sideways))(p.t) {
			p.t.Errorf("%s has to be scrolled sideways on a %s", name, s.name)
		}
		picture := must(chromedp.Run(p.ctx, chromedp.FullScreenshot(100)))(p.t)
		if err := os.WriteFile(filepath.Join(dir, name+"-"+s.name+".png"), picture, 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	p.do("show as before", chromedp.EmulateReset())
}

// theForm returns the fields of the page's form, as the query of a URL after its address.
var theForm = chromedp.Evaluate[string](`(() => {
	const form = document.querySelector("form");
	return form.action + "?" + new URLSearchParams(new FormData(form));
})()`)

// submit sends a form as theForm gave it, from the page that is shown.
func (p *tab) submit(form, button string) {
	p.t.Helper()
	p.do("send a form", chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(() => {
		const at = new URL(%q + "&" + %q);
		const form = document.createElement("form");
		form.method = "post";
		form.action = at.origin + at.pathname;
		for (const [name, value] of at.searchParams) {
			const field = document.createElement("input");
			[field.type, field.name, field.value] = ["hidden", name, value];
			form.append(field);
		}
		document.body.append(form);
		form.submit();
	})()`, form, button)))
}
