package conformance_test

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
)

// consoleScreens are the sizes and themes of screenshots of the console.
var consoleScreens = []screen{
	{"light", 1440, 900, "light", nil}, {"dark", 1440, 900, "dark", nil},
	{"phone", 390, 844, "light", phone}, {"phone-dark", 390, 844, "dark", phone},
	{"zoom", 320, 256, "light", nil}, // 1280 pixels at 400 %
}

// consoleServers contains a server in each state.
const consoleServers = `{"mcpServers": {
	"github": {"command": "PATCHBAY", "args": ["serve", "--stdio", "--tasks", "memory"]},
	"files": {"command": "PATCHBAY", "args": ["serve", "--stdio", "--tasks", "memory"]},
	"crawler": {"command": "sh", "args": ["-c", "echo 'Error: CRAWL_TOKEN is not set' >&2; exit 3"]},
	"search": {"url": "http://127.0.0.1:9/mcp"}}}`

// guideImages are the states that the guides show, and the names of their images.
var guideImages = map[string]string{
	"overview": "console-overview", "explore": "console", "traffic-selected": "console-traffic",
	"inbox": "console-inbox", "pins": "console-pins", "doctor": "console-doctor",
}

// guideScreen is the size and theme of an image of the guides.
var guideScreen = screen{"guide", 1280, 860, "light", nil}

// stoppedClock pauses live updates and replaces times, durations, ports and temporary paths, so that a
// screenshot of the same data is the same image.
const stoppedClock = `(() => {
	document.dispatchEvent(new CustomEvent("pause"));
	const connection = document.getElementById("connection");
	if (connection && !connection.hidden) {
		[connection.className, connection.textContent] = ["connection live", "Live"];
	}
	for (const e of document.querySelectorAll("[data-since]")) { delete e.dataset.since; }
	const fixed = [[/\d\d:\d\d:\d\d(\.\d+)?/g, "12:01:07"], [/\d{4}-\d\d-\d\d \d\d:\d\d/g, "2026-07-28 12:01"],
		[/\b\d+(\.\d+)?( ?)(µs|ms)/g, "12$2ms"], [/\b\d+(\.\d+)? (s|min)\b/g, "4 min"],
		[/\b\d:\d\d left/g, "4:12 left"],
		[/\b[0-9a-f]{32}\b/g, "4bf92f3577b34da6a3ce929d0e0e4736"], [/\bpid \d+/g, "pid 4217"],
		[/127\.0\.0\.1:\d{4,}/g, "127.0.0.1:6280"], [/\/tmp\/\S*\//g, "/home/ann/"]];
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		if (walk.currentNode.parentElement.closest("code")) { continue; }
		const text = fixed.reduce((text, [what, by]) => text.replace(what, by), walk.currentNode.data);
		if (text !== walk.currentNode.data) { walk.currentNode.data = text; }
	}
})()`

// TestConsoleScreens takes screenshots of each screen, light and dark, on a desktop and a phone.
// With PATCHBAY_SCREENSHOTS it writes the images of the guides to this folder.
func TestConsoleScreens(t *testing.T) {
	browser := startBrowser(t)
	missing := map[string]bool{}
	for _, image := range guideImages {
		missing[image] = true
	}
	visitConsole(t, browser, func(p *watchedTab, name string) {
		p.stopClock()
		p.pictures("console-"+name, consoleScreens[:4])
	})
	visitGateway(t, browser, func(p *watchedTab, name string) {
		p.stopClock()
		p.pictures("gateway-"+name, consoleScreens[:4])
		if image := guideImages[name]; image != "" {
			p.guideImage(image)
			delete(missing, image)
		}
	})
	for image := range missing {
		t.Errorf("no screen was shown for the image %s", image)
	}
}

func (p *watchedTab) stopClock() {
	p.t.Helper()
	p.waitFor("the stopped clock", "document.body !== null && "+isLoaded+" && ("+stoppedClock+", true)")
}

// pictures writes screenshots as artifacts of the test: see go test -artifacts.
func (p *watchedTab) pictures(name string, screens []screen) {
	p.t.Helper()
	p.screenshotIn(p.t.ArtifactDir(), name, screens)
}

// guideImage writes an image of the guides, if PATCHBAY_SCREENSHOTS names their folder.
func (p *watchedTab) guideImage(name string) {
	p.t.Helper()
	p.showOn(guideScreen)
	picture := must(chromedp.Run(p.ctx, chromedp.CaptureScreenshot()))(p.t)
	p.do("restore the viewport", chromedp.EmulateReset())
	if dir := os.Getenv("PATCHBAY_SCREENSHOTS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), reduceColors(p.t, picture), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
}

// reduceColors writes an image with its 256 most frequent colors, in a third of the bytes.
func reduceColors(t *testing.T, picture []byte) []byte {
	t.Helper()
	full := must(png.Decode(bytes.NewReader(picture)))(t)
	bounds, counts := full.Bounds(), map[color.Color]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[full.At(x, y)]++
		}
	}
	var palette color.Palette
	for c := range counts {
		palette = append(palette, c)
	}
	slices.SortFunc(palette, func(a, b color.Color) int { return cmp.Compare(counts[b], counts[a]) })
	palette = palette[:min(len(palette), 256)]
	reduced, nearest := image.NewPaletted(bounds, palette), map[color.Color]uint8{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := full.At(x, y)
			at, ok := nearest[c]
			if !ok {
				at = uint8(palette.Index(c))
				nearest[c] = at
			}
			reduced.SetColorIndex(x, y, at)
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, reduced); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
