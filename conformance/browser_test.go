package conformance_test

import (
	"cmp"
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

// needBrowser returns the path of Chromium. Without Chromium it skips the test, or fails it in CI.
func needBrowser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if binary, err := exec.LookPath(name); err == nil {
			return binary
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("Chromium is not installed: apt-get install chromium")
	}
	t.Skip("Chromium is not installed, so the login pages are not tested; conformance/run installs it")
	return ""
}

// reboundHost is a name of another site, whose owner resolves it to this machine.
const reboundHost = "prize.example"

// startBrowser starts Chromium until the test ends and returns a context for opening tabs.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	flags := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(needBrowser(t)),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(time.Minute), // it starts slowly on a busy machine
		chromedp.Flag("headless", true),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		// Only the servers of the tests are reachable.
		chromedp.Flag("host-resolver-rules", "MAP "+reboundHost+" 127.0.0.1 , MAP * ~NOTFOUND , EXCLUDE localhost , "+
			"EXCLUDE *.localhost , EXCLUDE 127.0.0.1"),
	}
	for _, flag := range []string{"disable-quic", "disable-background-networking", "disable-component-update",
		"disable-sync", "disable-dev-shm-usage", "hide-scrollbars"} {
		flags = append(flags, chromedp.Flag(flag, true))
	}
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), flags...)
	browser, stop := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		stop()
		cancel()
	})
	if err := chromedp.Do(browser); err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	return browser
}

// A tab is a page in its own browser profile. It shares no cookies with other tabs.
type tab struct {
	t   *testing.T
	ctx context.Context
}

// tabLimit ends a test whose browser hangs. A busy machine takes minutes for what takes seconds.
const tabLimit = 8 * time.Minute

// newTab opens a tab.
func newTab(t *testing.T, browser context.Context) *tab {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	if err := chromedp.Do(ctx); err != nil {
		closeTab()
		t.Fatalf("open a tab: %v", err)
	}
	limited, cancel := context.WithTimeout(ctx, tabLimit)
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

// click clicks the element that a selector matches.
func (p *tab) click(selector string) {
	p.t.Helper()
	p.do("click "+selector, chromedp.Click(chromedp.CSS(selector)))
}

// enter types into a field with key events.
func (p *tab) enter(selector, value string) {
	p.t.Helper()
	p.do("enter "+selector, chromedp.Clear(chromedp.CSS(selector)), chromedp.SendKeys(chromedp.CSS(selector), value))
}

// waitForText waits until the page shows a text, ignoring case.
func (p *tab) waitForText(text string) {
	p.t.Helper()
	p.waitFor("text "+text, fmt.Sprintf(`document.readyState === "complete" &&
		document.body.innerText.toLowerCase().includes(%s)`, strconv.Quote(strings.ToLower(text))))
}

// waitFor waits until a script evaluates to true, across navigations.
func (p *tab) waitFor(what, script string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		// An error means that the page is being unloaded.
		if yes, err := chromedp.Run(ctx, chromedp.Evaluate[bool](script)); err == nil && yes {
			return
		}
		select {
		case <-ctx.Done():
			p.t.Fatalf("timeout waiting for %s\nat %s\n%s", what, p.location(), p.text())
		case <-ticker.C:
		}
	}
}

// location and text are also used in failure messages, so they return an error as text.
func (p *tab) location() string { return p.read(chromedp.Location()) }

func (p *tab) text() string { return p.read(chromedp.Evaluate[string](`document.body.innerText`)) }

func (p *tab) read(what chromedp.Action[string]) string {
	text, err := chromedp.Run(p.ctx, what)
	if err != nil {
		return err.Error()
	}
	return text
}

// A screen is a viewport and color scheme for screenshots.
type screen struct {
	name          string
	width, height int64
	scheme        string
	options       []chromedp.EmulateViewportOption
}

var (
	phone = []chromedp.EmulateViewportOption{chromedp.EmulateMobile, chromedp.EmulatePortrait,
		chromedp.EmulateScale(2)}
	screens = []screen{
		{"desktop", 1280, 800, "light", nil},
		{"phone", 390, 844, "light", phone},
		{"phone-dark", 390, 844, "dark", phone},
	}
)

// screenshot takes screenshots of the page on a wide screen and a phone, light and dark, and
// restores the viewport.
func (p *tab) screenshot(name string) {
	p.t.Helper()
	p.screenshotOn(name, screens)
}

// screenshotOn is screenshot on other screens.
func (p *tab) screenshotOn(name string, screens []screen) {
	p.t.Helper()
	p.screenshotIn(cmp.Or(os.Getenv("PATCHBAY_SCREENSHOTS"), p.t.ArtifactDir()), name, screens)
}

// screenshotIn is screenshotOn with another folder.
func (p *tab) screenshotIn(dir, name string, screens []screen) {
	p.t.Helper()
	for _, s := range screens {
		p.showOn(s)
		if p.scrollsSideways() {
			p.t.Errorf("page %s scrolls horizontally on a %s", name, s.name)
		}
		p.do("scroll to the top", chromedp.Evaluate[chromedp.Void](`scrollTo(0, 0)`))
		picture := p.capture()
		if err := os.WriteFile(filepath.Join(dir, name+"-"+s.name+".png"), picture, 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	p.do("restore the viewport", chromedp.EmulateReset())
}

// captureLimit bounds a screenshot, which takes less than a second. Chromium sometimes does not respond to
// the request, and responds when it is repeated.
const captureLimit = time.Minute

// capture returns a screenshot of the whole page.
func (p *tab) capture() []byte {
	p.t.Helper()
	for range 2 {
		ctx, cancel := context.WithTimeout(p.ctx, captureLimit)
		picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
		cancel()
		if err == nil {
			return picture
		}
		p.t.Logf("screenshot: %v", err)
	}
	return must(chromedp.Run(p.ctx, chromedp.FullScreenshot(100)))(p.t)
}

// showOn shows the page on a screen.
func (p *tab) showOn(s screen) {
	p.t.Helper()
	p.do("show the page on a "+s.name, chromedp.EmulateViewport(s.width, s.height, s.options...),
		func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
			_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: s.scheme}},
			})
			return chromedp.Void{}, err
		})
}

// scrollsSideways reports whether the page is wider than the screen.
func (p *tab) scrollsSideways() bool {
	p.t.Helper()
	script := `(e => e.scrollWidth > e.clientWidth)(document.documentElement)`
	return must(chromedp.Run(p.ctx, chromedp.Evaluate[bool](script)))(p.t)
}

// readForm returns the fields of the page's form, as the query of a URL after its address.
var readForm = chromedp.Evaluate[string](`(() => {
	const form = document.querySelector("form");
	return form.action + "?" + new URLSearchParams(new FormData(form));
})()`)

// submit sends a form that readForm returned, from the current page.
func (p *tab) submit(form, button string) {
	p.t.Helper()
	p.do("submit a form", chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(() => {
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
