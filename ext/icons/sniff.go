package icons

import (
	"bytes"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"strings"
	"unicode/utf8"
)

// The types of images that are allowed.
const (
	typePNG  = "image/png"
	typeJPEG = "image/jpeg"
	typeGIF  = "image/gif"
	typeWebP = "image/webp"
	typeSVG  = "image/svg+xml"
)

var acceptedTypes = strings.Join([]string{typePNG, typeJPEG, typeGIF, typeWebP, typeSVG}, ", ")

const (
	// maxSide limits the width and the height of an image, in pixels: decoded, it takes at most 64
	// MiB.
	maxSide = 4096
	// maxDepth limits the nesting of an SVG document: programs that draw it are often recursive.
	maxDepth = 256
	// svgNamespace is that of the elements of SVG.
	svgNamespace = "http://www.w3.org/2000/svg"
)

// sniff returns the type of an image by its content. The error is for content that is not allowed.
func sniff(data []byte) (kind string, err error) {
	var config func(io.Reader) (image.Config, error)
	switch {
	case bytes.HasPrefix(data, []byte("\x89PNG\r\n\x1a\n")):
		kind, config = typePNG, png.DecodeConfig
	case bytes.HasPrefix(data, []byte("\xff\xd8\xff")):
		kind, config = typeJPEG, jpeg.DecodeConfig
	case bytes.HasPrefix(data, []byte("GIF87a")), bytes.HasPrefix(data, []byte("GIF89a")):
		kind, config = typeGIF, gif.DecodeConfig
	case len(data) >= 12 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP":
		kind, config = typeWebP, decodeWebPConfig
	default:
		if err := checkSVG(data); err != nil {
			return "", fmt.Errorf("invalid image: must be PNG, JPEG, GIF, WebP or SVG; as SVG: %w", err)
		}
		return typeSVG, nil
	}
	c, err := config(bytes.NewReader(data))
	switch {
	case err != nil:
		return "", fmt.Errorf("invalid image: malformed %s header", kind)
	case c.Width < 1 || c.Height < 1 || c.Width > maxSide || c.Height > maxSide:
		return "", fmt.Errorf("invalid image of %d by %d pixels: must be 1 to %d", c.Width, c.Height, maxSide)
	}
	return kind, nil
}

// decodeWebPConfig returns the dimensions of a WebP image, which the standard library does not
// read.
//
// Spec: RFC 9649, sections 2.5 to 2.7; RFC 6386, section 9.1.
func decodeWebPConfig(r io.Reader) (c image.Config, err error) {
	var head [30]byte // RIFF header, chunk header, and the first 10 bytes of the chunk
	n, err := io.ReadFull(r, head[:])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) || n < 25 {
		return c, io.ErrUnexpectedEOF
	}
	chunk := head[20:n]
	switch kind := string(head[12:16]); {
	case kind == "VP8L" && chunk[0] == 0x2f:
		bits := binary.LittleEndian.Uint32(chunk[1:])
		c.Width, c.Height = int(bits&0x3fff)+1, int(bits>>14&0x3fff)+1
	case len(chunk) < 10:
		return c, io.ErrUnexpectedEOF
	case kind == "VP8 " && chunk[0]&1 == 0 && string(chunk[3:6]) == "\x9d\x01\x2a":
		c.Width = int(binary.LittleEndian.Uint16(chunk[6:]) & 0x3fff)
		c.Height = int(binary.LittleEndian.Uint16(chunk[8:]) & 0x3fff)
	case kind == "VP8X":
		c.Width = 1 + int(chunk[4]) + int(chunk[5])<<8 + int(chunk[6])<<16
		c.Height = 1 + int(chunk[7]) + int(chunk[8])<<8 + int(chunk[9])<<16
	default:
		return c, errors.New("unknown chunk")
	}
	return c, nil
}

// checkSVG returns an error if data is not a well-formed XML document whose root is an svg element,
// or contains a document type declaration. The error contains no text of the document.
func checkSVG(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New("must be UTF-8")
	}
	d := xml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
	depth, roots := 0, 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && roots == 1 {
			return nil
		}
		if err != nil {
			return errors.New("must be well-formed XML")
		}
		switch token := token.(type) {
		case xml.Directive:
			return errors.New("must not have a document type declaration")
		case xml.StartElement:
			if depth == 0 {
				roots++
			}
			isSVG := token.Name == xml.Name{Space: svgNamespace, Local: "svg"}
			if depth++; depth > maxDepth || roots > 1 || roots == 1 && depth == 1 && !isSVG {
				return fmt.Errorf("must have one root element, svg, and at most %d levels", maxDepth)
			}
		case xml.EndElement:
			depth--
		case xml.CharData:
			if depth == 0 && len(bytes.TrimSpace(token)) > 0 {
				return errors.New("must not have text outside of the root element")
			}
		}
	}
}
