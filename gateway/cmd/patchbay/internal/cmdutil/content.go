package cmdutil

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/content"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Show prints text as it is and a description of other content, and saves binary content with --save.
func Show(f *Factory, c mcp.ContentBlock) error {
	text, ok := c.(*mcp.TextContent)
	if ok {
		f.IO.Out.Println(text.Text)
		return nil
	}
	if r, ok := c.(*mcp.EmbeddedResource); ok && r.Resource != nil && r.Resource.Blob == nil {
		f.IO.Out.Println(r.Resource.Text)
		return nil
	}
	f.IO.Out.Println(term.CleanLine(content.Describe(c)))
	return SaveContent(f, c)
}

// SaveContent writes binary content to a file if --save is set.
func SaveContent(f *Factory, c mcp.ContentBlock) error {
	switch c := c.(type) {
	case *mcp.ImageContent:
		return SaveFile(f, "image", c.MIMEType, c.Data)
	case *mcp.AudioContent:
		return SaveFile(f, "audio", c.MIMEType, c.Data)
	case *mcp.EmbeddedResource:
		if c.Resource != nil && c.Resource.Blob != nil {
			return SaveFile(f, c.Resource.URI, c.Resource.MIMEType, c.Resource.Blob)
		}
	}
	return nil
}

// SaveFile writes a new file to the directory of --save. It replaces no file, and no name
// chosen by a server leads out of the directory.
func SaveFile(p *Factory, name, mimeType string, data []byte) error {
	if p.Flags.Save == "" {
		return nil
	}
	if err := os.MkdirAll(p.Flags.Save, 0o755); err != nil {
		return err
	}
	stem, extension := content.FileName(name, mimeType)
	extension, problem := content.CheckExtension(extension, data)
	for n := 1; n <= content.MaxSameName; n++ {
		path := filepath.Join(p.Flags.Save, fmt.Sprintf("%s-%d%s", stem, n, extension))
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		p.IO.Err.Printf("saved %s%s", path, problem)
		return nil
	}
	return fmt.Errorf("save: %s already has %d files named %s-N", p.Flags.Save, content.MaxSameName, stem)
}
