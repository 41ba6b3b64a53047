// Package content describes the content of results in text.
package content

import (
	"bytes"
	"cmp"
	"fmt"
	"mime"
	"path/filepath"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Describe describes content in text.
func Describe(c mcp.ContentBlock) string {
	switch c := c.(type) {
	case *mcp.TextContent:
		return c.Text
	case *mcp.ImageContent:
		return Binary("image", c.MIMEType, c.Data)
	case *mcp.AudioContent:
		return Binary("audio", c.MIMEType, c.Data)
	case *mcp.ResourceLink:
		parts := slices.DeleteFunc([]string{c.URI, c.Name, c.MIMEType}, func(part string) bool { return part == "" })
		return "[resource " + strings.Join(parts, ", ") + "]"
	case *mcp.EmbeddedResource:
		if c.Resource == nil {
			return "[resource]"
		}
		if c.Resource.Blob == nil {
			return c.Resource.Text
		}
		return Binary("resource "+c.Resource.URI, c.Resource.MIMEType, c.Resource.Blob)
	case *mcp.ToolUseContent:
		return "[tool use: " + c.Name + " with " + string(c.Input) + "]"
	case *mcp.ToolResultContent:
		var all []string
		for _, inner := range c.Content {
			all = append(all, Describe(inner))
		}
		return "[tool result: " + strings.Join(all, " ") + "]"
	}
	return fmt.Sprintf("[content of type %T]", c)
}

// Binary returns a line that stands for binary content.
func Binary(what, mimeType string, data []byte) string {
	return fmt.Sprintf("[%s, %s, %s]", what, cmp.Or(mimeType, "unknown type"), term.FormatBytes(len(data)))
}

// MaxSameName bounds the files with the same stem in the directory of --save.
const MaxSameName = 1000

// FileName returns a safe file name: letters, digits, dash and underscore, and one dot.
func FileName(name, mimeType string) (stem, extension string) {
	const longest = 60
	name = name[strings.LastIndexByte(strings.TrimRight(name, "/"), '/')+1:]
	extension = safeName(strings.TrimPrefix(filepath.Ext(name), "."))
	stem = safeName(strings.TrimSuffix(name, filepath.Ext(name)))
	stem, extension = cmp.Or(stem, "content"), cmp.Or(extensionOf(mimeType), extension, "bin")
	return stem[:min(len(stem), longest)], "." + extension[:min(len(extension), longest)]
}

func safeName(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return -1
	}, text)
}

// extensionOf returns the file name extension of a media type. Package mime depends on the system.
func extensionOf(mimeType string) string {
	plain, _, err := mime.ParseMediaType(mimeType)
	if err != nil {
		return ""
	}
	return map[string]string{
		"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", "image/svg+xml": "svg",
		"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/ogg": "ogg", "audio/flac": "flac",
		"audio/mp4":       "m4a",
		"application/pdf": "pdf", "application/zip": "zip", "application/gzip": "gz",
		"video/mp4": "mp4", "application/json": "json",
	}[plain]
}

// signatures are how the content of files begins, by their extension.
var signatures = map[string][]string{
	"png": {"\x89PNG\r\n\x1a\n"}, "jpg": {"\xff\xd8\xff"}, "gif": {"GIF87a", "GIF89a"}, "webp": {"RIFF"},
	"wav": {"RIFF"}, "mp3": {"ID3", "\xff\xfb", "\xff\xf3", "\xff\xf2", "\xff\xfa"}, "ogg": {"OggS"}, "flac": {"fLaC"},
	"pdf": {"%PDF-"}, "zip": {"PK\x03\x04", "PK\x05\x06"}, "gz": {"\x1f\x8b"},
	"svg": {"<svg", "<?xml", "<!--", "<!DOCTYPE svg"},
	"m4a": {"\x00\x00\x00"}, "mp4": {"\x00\x00\x00"},
}

// offsetSignatures are the parts of signatures that do not come first.
var offsetSignatures = map[string]struct {
	at   int
	text string
}{"webp": {8, "WEBP"}, "wav": {8, "WAVE"}, "m4a": {4, "ftyp"}, "mp4": {4, "ftyp"}}

// hasSignature reports whether content may be of the kind that an extension names.
func hasSignature(extension string, data []byte) bool {
	starts := func(text string) bool { return bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n\ufeff"), []byte(text)) }
	if extension != "svg" {
		starts = func(text string) bool { return bytes.HasPrefix(data, []byte(text)) }
	}
	more, has := offsetSignatures[extension]
	return slices.ContainsFunc(signatures[extension], starts) &&
		(!has || len(data) >= more.at && bytes.HasPrefix(data[more.at:], []byte(more.text)))
}

// CheckExtension returns the extension that the content has, and a note if it is another. A server
// must not pass a program off as an image.
func CheckExtension(extension string, data []byte) (checked, problem string) {
	name := strings.ToLower(strings.TrimPrefix(extension, "."))
	if name == "jpeg" {
		name = "jpg"
	}
	_, known := signatures[name]
	if name == "json" {
		known = rawjson.Valid(data) != nil
	}
	if !known || hasSignature(name, data) {
		return extension, ""
	}
	for _, other := range []string{"png", "jpg", "gif", "webp", "wav", "ogg", "flac", "pdf"} {
		if hasSignature(other, data) {
			return "." + other, fmt.Sprintf(" (the content is %s, not %s)", other, name)
		}
	}
	return ".bin", fmt.Sprintf(" (the content is not %s)", name)
}
