package cli

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	_ "image/gif"  // for image.Decode
	_ "image/jpeg" // for image.Decode
	"image/png"
	"os"
	"strings"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxPictureBytes bounds an image that is shown, in bytes. The terminal keeps it in memory.
	maxPictureBytes = 8 << 20
	// maxPicturePixels bounds its decoded size: a small file can have very many pixels.
	maxPicturePixels = 16 << 20
	// maxPictureRows bounds its height on the terminal, in rows.
	maxPictureRows = 30
	// kittyChunk is the largest payload of one kitty graphics command, in bytes.
	kittyChunk = 4096
	// cellWidth and cellHeight are the assumed size of a character, in pixels.
	cellWidth, cellHeight = 8, 16
)

// A pictureProtocol is how a terminal shows images.
type pictureProtocol int

const (
	noPictures    pictureProtocol = iota
	kittyPictures                 // https://sw.kovidgoyal.net/kitty/graphics-protocol/
	itermPictures                 // https://iterm2.com/documentation-images.html
)

// pictureProtocolOf returns the protocol of the terminal that the environment describes. Asking the
// terminal itself could wait for an answer without end. Multiplexers do not pass images on.
func pictureProtocolOf(env func(string) string) pictureProtocol {
	terminal, program := env("TERM"), env("TERM_PROGRAM")
	switch {
	case env("TMUX") != "" || strings.HasPrefix(terminal, "screen") || strings.HasPrefix(terminal, "tmux") ||
		terminal == "dumb":
		return noPictures
	case terminal == "xterm-kitty" || terminal == "xterm-ghostty" || program == "ghostty":
		return kittyPictures
	case program == "iTerm.app" || program == "WezTerm" || program == "mintty":
		return itermPictures
	case program == "" && env("KITTY_WINDOW_ID") != "":
		return kittyPictures
	}
	return noPictures
}

// showPicture shows an image on the terminal if the terminal can and --images allows it.
func (p *program) showPicture(data []byte) {
	protocol := pictureProtocolOf(os.Getenv)
	if !p.output.terminal || p.flags.json || p.flags.images.value == "never" || protocol == noPictures {
		return
	}
	if text := picture(data, protocol, p.output.width()); text != "" {
		p.output.write(text + "\n")
	}
}

// showPictureOf shows the image that a content block has, if any.
func (p *program) showPictureOf(c mcp.ContentBlock) {
	switch c := c.(type) {
	case *mcp.ImageContent:
		p.showPicture(c.Data)
	case *mcp.EmbeddedResource:
		if c.Resource != nil {
			p.showPicture(c.Resource.Blob)
		}
	}
}

// picture returns the escape sequences that show a PNG, JPEG or GIF image, or "" for other data. The
// data of the server is in them as base64 only.
func picture(data []byte, protocol pictureProtocol, width int) string {
	if len(data) == 0 || len(data) > maxPictureBytes {
		return ""
	}
	header, format, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil || header.Width <= 0 || header.Height <= 0 || header.Width > maxPicturePixels/header.Height {
		return ""
	}
	columns, rows := pictureSize(header, realWidth(width)-1)
	if protocol == itermPictures {
		return fmt.Sprintf("\x1b]1337;File=inline=1;size=%d;width=%d;height=%d;preserveAspectRatio=1:%s\a", len(data),
			columns, rows, base64.StdEncoding.EncodeToString(data))
	}
	if format != "png" { // the only format that kitty decodes
		decoded, _, err := image.Decode(bytes.NewReader(data))
		var b bytes.Buffer
		if err != nil || (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&b, decoded) != nil {
			return ""
		}
		data = b.Bytes()
	}
	return kitty(base64.StdEncoding.EncodeToString(data), columns, rows)
}

// pictureSize returns the columns and rows of an image, at most as wide as the terminal.
func pictureSize(size image.Config, most int) (columns, rows int) {
	w, h := float64(size.Width)/cellWidth, float64(size.Height)/cellHeight
	scale := min(1, float64(most)/w, maxPictureRows/h)
	return max(int(w*scale), 1), max(int(h*scale), 1)
}

// kitty returns the commands that send an image in chunks. The terminal must not answer: q=2.
func kitty(encoded string, columns, rows int) string {
	var b strings.Builder
	control := fmt.Sprintf("a=T,f=100,q=2,c=%d,r=%d,", columns, rows)
	for len(encoded) > 0 {
		chunk := encoded[:min(len(encoded), kittyChunk)]
		encoded = encoded[len(chunk):]
		more := 0
		if encoded != "" {
			more = 1
		}
		fmt.Fprintf(&b, "\x1b_G%sm=%d;%s\x1b\\", control, more, chunk)
		control = ""
	}
	return b.String()
}
