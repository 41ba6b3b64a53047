package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
)

func encoded(t *testing.T, format string, width, height int) []byte {
	t.Helper()
	var b bytes.Buffer
	img := image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{color.Black, color.White})
	var err error
	switch format {
	case "png":
		err = png.Encode(&b, img)
	case "jpeg":
		err = jpeg.Encode(&b, img, nil)
	case "gif":
		err = gif.Encode(&b, img, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestPictureProtocolIsThatOfTheEnvironment(t *testing.T) {
	for text, want := range map[string]pictureProtocol{
		"":                                      noPictures,
		"TERM=xterm-256color":                   noPictures,
		"TERM=xterm-kitty KITTY_WINDOW_ID=1":    kittyPictures,
		"TERM=xterm-256color KITTY_WINDOW_ID=1": kittyPictures,
		"TERM=xterm-ghostty TERM_PROGRAM=ghostty":     kittyPictures,
		"TERM=xterm-256color TERM_PROGRAM=iTerm.app":  itermPictures,
		"TERM=xterm-256color TERM_PROGRAM=WezTerm":    itermPictures,
		"TERM_PROGRAM=vscode KITTY_WINDOW_ID=1":       noPictures,
		"TERM=xterm-kitty TMUX=/tmp/tmux":             noPictures,
		"TERM=tmux-256color KITTY_WINDOW_ID=1":        noPictures,
		"TERM=screen TERM_PROGRAM=iTerm.app":          noPictures,
		"TERM=dumb KITTY_WINDOW_ID=1":                 noPictures,
		"TERM=xterm-256color TERM_PROGRAM=Apple_Term": noPictures,
	} {
		env := map[string]string{}
		for _, word := range strings.Fields(text) {
			name, value, _ := strings.Cut(word, "=")
			env[name] = value
		}
		if got := pictureProtocolOf(func(name string) string { return env[name] }); got != want {
			t.Errorf("%s: got %d, want %d", text, got, want)
		}
	}
}

var (
	kittyCommand = regexp.MustCompile(`^\x1b_G(a=T,f=100,q=2,c=\d+,r=\d+,)?m=([01]);([A-Za-z0-9+/=]+)\x1b\\`)
	itermCommand = regexp.MustCompile(`^\x1b\]1337;File=inline=1;size=\d+;width=\d+;height=\d+;preserveAspectRatio=1:` +
		`([A-Za-z0-9+/=]+)\x07$`)
)

func TestPicturesAreBase64(t *testing.T) {
	for _, format := range []string{"png", "jpeg", "gif"} {
		data := encoded(t, format, 900, 700)
		m := itermCommand.FindStringSubmatch(picture(data, itermPictures, 80))
		if m == nil || m[1] != base64.StdEncoding.EncodeToString(data) {
			t.Errorf("%s: not an image of iTerm2", format)
		}
		var payload string
		for rest := picture(data, kittyPictures, 80); rest != ""; {
			m := kittyCommand.FindStringSubmatch(rest)
			if m == nil {
				t.Fatalf("%s: not a command of kitty: %.60q", format, rest)
			}
			if len(m[3]) > kittyChunk {
				t.Errorf("%s: a chunk of %d bytes, want at most %d", format, len(m[3]), kittyChunk)
			}
			payload, rest = payload+m[3], rest[len(m[0]):]
			if (m[2] == "0") != (rest == "") {
				t.Errorf("%s: m=%s before %d more bytes", format, m[2], len(rest))
			}
		}
		got, err := base64.StdEncoding.DecodeString(payload)
		if header, kind, bad := image.DecodeConfig(bytes.NewReader(got)); err != nil || bad != nil || kind != "png" ||
			header.Width != 900 {
			t.Errorf("%s: the payload is %s, %+v, %v, %v, want the image as png", format, kind, header, err, bad)
		}
	}
	bomb := encoded(t, "png", 8000, 4000)
	for name, data := range map[string][]byte{"nothing": nil, "text": []byte(hostile), "too many pixels": bomb,
		"too large":         append(encoded(t, "png", 1, 1), make([]byte, maxPictureBytes)...),
		"incomplete header": encoded(t, "png", 5, 5)[:20], "svg": []byte("<svg/>")} {
		for _, protocol := range []pictureProtocol{kittyPictures, itermPictures} {
			if got := picture(data, protocol, 80); got != "" {
				t.Errorf("%s: shown as %.60q", name, got)
			}
		}
	}
	if got := picture(encoded(t, "jpeg", 50, 50)[:300], kittyPictures, 80); got != "" {
		t.Errorf("a cut jpeg: shown as %.60q", got)
	}
}

func TestPicturesAreShownAndSaved(t *testing.T) {
	data := encoded(t, "png", 10, 10)
	s := mcp.NewServer("pictures", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "draw"}, func(context.Context, struct{}) ([]mcp.ContentBlock, error) {
		return []mcp.ContentBlock{&mcp.ImageContent{Data: data, MIMEType: "image/jpeg"},
			&mcp.ImageContent{Data: []byte("\x1b[2J#!/bin/sh"), MIMEType: "image/png"}}, nil
	})
	mcp.AddResource(s, &mcp.Resource{URI: "x://a.png", Name: "a", MIMEType: "image/png"},
		func(context.Context, string) ([]byte, error) { return data, nil })
	url := listen(t, s)
	for _, name := range []string{"TERM_PROGRAM", "TMUX"} {
		t.Setenv(name, "")
	}
	t.Setenv("TERM", "xterm-kitty")
	const start = "\x1b_Ga=T,"
	for _, args := range [][]string{{"call", url, "draw"}, {"read", url, "x://a.png"}} {
		for _, revision := range revisions() {
			o := atTerminal(t, "", nil, append(args, "--revision", revision)...)
			if strings.Count(o.stdout, start) != 1 || !strings.Contains(o.stdout, "[") || strings.Contains(o.stdout, "\x1b[2J") {
				t.Errorf("%q in %s: got %q, want the image once", args, revision, o.stdout)
			}
		}
		for name, o := range map[string]outcome{
			"--images never": atTerminal(t, "", nil, append(args, "--images", "never")...),
			"--json":         atTerminal(t, "", nil, append(args, "--json")...),
			"pipe":           patchbay(t, "", args...),
		} {
			if o.status != exitOK || strings.Contains(o.stdout, start) {
				t.Errorf("%q, %s: exit code %d, %q, want no image", args, name, o.status, o.stdout)
			}
		}
	}
	dir := t.TempDir()
	o := patchbay(t, "", "call", "--save", dir, url, "draw")
	for _, text := range []string{"image-1.png (the content is png, not jpg)", "image-1.bin (the content is not png)"} {
		if !strings.Contains(o.stderr, text) {
			t.Errorf("got %s, want %q", o.stderr, text)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "image-1.png")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the saved file has %d bytes, %v, want %d", len(got), err, len(data))
	}
	if o := patchbay(t, "", "ping", "--images", "always", url); o.status != exitUsage ||
		!strings.Contains(o.stderr, "want one of auto, never") {
		t.Errorf("--images always: exit code %d, %s", o.status, o.stderr)
	}
}

func TestExtensionsFitTheContent(t *testing.T) {
	for _, test := range []struct{ extension, data, want string }{
		{".png", "\x89PNG\r\n\x1a\nx", ".png"}, {".png", "GIF89a", ".gif"}, {".png", "MZ\x00", ".bin"}, {".png", "", ".bin"},
		{".jpeg", "\xff\xd8\xff\xe0", ".jpeg"}, {".wav", "RIFF1234WAVE", ".wav"}, {".webp", "RIFF1234WAVE", ".wav"},
		{".svg", " \n<svg>", ".svg"}, {".svg", "<script>", ".bin"}, {".pdf", "<html>", ".bin"}, {".json", "{}", ".json"},
		{".json", "<html>", ".bin"}, {".mp4", "\x00\x00\x00\x18ftypmp42", ".mp4"}, {".mp4", "\x00", ".bin"}, {".txt", "x", ".txt"},
		{".PNG", "x", ".bin"},
	} {
		if got, _ := checkExtension(test.extension, []byte(test.data)); got != test.want {
			t.Errorf("%s with %q: got %s, want %s", test.extension, test.data, got, test.want)
		}
	}
}
