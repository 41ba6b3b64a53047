package mcphttp

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
)

// An http.Transport asks for compression and decompresses, but makes a header of its own for that
// in each request. So POSTs that go to it directly ask already, and their responses are
// decompressed here.

// decompress decompresses the body of a response, as net/http does.
func decompress(res *http.Response) {
	if res.ContentLength == 0 || !strings.EqualFold(res.Header.Get("Content-Encoding"), "gzip") {
		return
	}
	res.Body = &gzipBody{ReadCloser: res.Body}
	res.Header.Del("Content-Encoding")
	res.Header.Del("Content-Length")
	res.ContentLength, res.Uncompressed = -1, true
}

// A gzipBody decompresses a body while it is read. It may be closed during a read.
type gzipBody struct {
	io.ReadCloser
	text *gzip.Reader // nil before the first read
	err  error        // of the header
}

// Read reads decompressed bytes.
func (b *gzipBody) Read(p []byte) (int, error) {
	if b.text == nil && b.err == nil {
		b.text, b.err = gzip.NewReader(b.ReadCloser)
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.text.Read(p)
}
