package icons_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/icons"
	"github.com/patchbay-mcp/patchbay/internal/oauthtest"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// Requirement: ICON-01, ICON-02
func TestTypesOfImages(t *testing.T) {
	s := newSite(t)
	for _, test := range []struct {
		declared, want string
		data           []byte
	}{
		{"image/png", "image/png", pngOf(48, 48)},
		{"IMAGE/PNG; x=y", "image/png", pngOf(4096, 1)},
		{"image/jpeg", "image/jpeg", jpegOf(48, 48)},
		{"image/jpg", "image/jpeg", jpegOf(1, 4096)},
		{"image/gif", "image/gif", gifOf(48, 48)},
		{"image/webp", "image/webp", webpOf("VP8 ", 48, 48)},
		{"image/webp", "image/webp", webpOf("VP8L", 4096, 4096)},
		{"image/webp", "image/webp", webpOf("VP8X", 4096, 48)},
		{"image/svg+xml", "image/svg+xml", []byte(svg)},
		{"image/svg+xml;charset=utf-8", "image/svg+xml", []byte("\ufeff<?xml version=\"1.0\"?>\n<!-- a -->" + svg + "\n")},
	} {
		s.serve(iconURL, test.declared, test.data)
		for _, icon := range []mcp.Icon{
			{Src: iconURL}, {Src: iconURL, MIMEType: test.declared}, {Src: dataURI(test.declared, test.data)},
			{Src: strings.TrimRight(dataURI(test.declared, test.data), "="), MIMEType: test.want},
		} {
			got, err := s.fetch(t, icon)
			if err != nil {
				t.Errorf("%.100s as %s: %v", icon.Src, test.declared, err)
				continue
			}
			isSVG := test.want == "image/svg+xml"
			if got.MIMEType != test.want || !bytes.Equal(got.Data, test.data) || got.NotInline != isSVG {
				t.Errorf("%.100s: got %s, %d bytes, NotInline %v; want %s, %d bytes, %v", icon.Src, got.MIMEType,
					len(got.Data), got.NotInline, test.want, len(test.data), isSVG)
			}
		}
	}
	s.serve(iconURL, "", pngOf(1, 1))
	if got, err := s.fetch(t, mcp.Icon{Src: iconURL}); err != nil || got.MIMEType != "image/png" {
		t.Errorf("without a Content-Type: got %v, %v, want the type of the content", got, err)
	}
}

// Requirement: ICON-03
func TestSchemesAreRefused(t *testing.T) {
	s := newSite(t)
	for _, src := range []string{
		"javascript:alert(1)", "JavaScript://mcp.example/%0aalert(1)", "file:///etc/passwd", "ftp://mcp.example/icon",
		"ws://mcp.example/icon", "wss://mcp.example/icon", "vscode://mcp.example/icon", "blob:https://mcp.example/x",
		"http://mcp.example/icon", "//mcp.example/icon", "/icon", "icon", "", "data", " " + iconURL, iconURL + "\n",
		iconURL + "#a", "https:mcp.example/icon", "https://", iconURL + strings.Repeat("x", 5000),
		dataURI("image/svg+xml", []byte(svg)) + "#a",
	} {
		if got, err := s.fetch(t, mcp.Icon{Src: src}); !errors.Is(err, oauth.ErrURLRefused) {
			t.Errorf("%.100q: got %v, %v, want ErrURLRefused", src, got, err)
		}
	}
	if all := s.Requests(); len(all) > 0 {
		t.Errorf("got requests %q, want none", all)
	}
}

// Requirement: ICON-03, ICON-04
func TestRedirectsAreNotFollowed(t *testing.T) {
	s := newSite(t)
	for _, to := range []string{
		"https://mcp.example/other", "/other", "https://evil.example/icon", "http://mcp.example/icon",
		"javascript:alert(1)", "file:///etc/passwd", dataURI("image/png", pngOf(1, 1)), "",
	} {
		s.Page(iconURL, oauthtest.RedirectPage(to))
		_, err := s.fetch(t, mcp.Icon{Src: iconURL})
		if failed, ok := errors.AsType[*oauth.FetchError](err); !ok || failed.Status != http.StatusFound {
			t.Errorf("redirect to %.50q: got error %v, want a FetchError with status 302", to, err)
		}
		if all := s.Requests(); !slices.Equal(all, []string{"GET " + iconURL}) {
			t.Errorf("redirect to %.50q: got requests %q, want one", to, all)
		}
	}
}

// Requirement: ICON-04
func TestMetadataIsNotTrusted(t *testing.T) {
	s := newSite(t)
	for name, page := range map[string]http.HandlerFunc{
		"not found":  http.NotFound,
		"no content": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write(pngOf(1, 1))
			panic(http.ErrAbortHandler)
		},
	} {
		s.Page(iconURL, page)
		_, err := s.fetch(t, mcp.Icon{Src: iconURL, MIMEType: "image/png", Sizes: []string{"1x1"}})
		if _, ok := errors.AsType[*oauth.FetchError](err); !ok {
			t.Errorf("%s: got error %v, want a FetchError", name, err)
		}
	}
	for _, src := range []string{
		"data:", "data:,", "data:image/png", "data:image/png;base64", "data:image/png;base64,", "data:image/png;base64,%%%",
		"data:image/png;base64,AAA*", "data:image/png,%zz", "data:;base64," + dataURI("", pngOf(1, 1))[len("data:;base64,"):],
		"data:" + strings.Repeat("x", 300) + "," + svg, "data:text/html,<script>alert(1)</script>",
	} {
		if got, err := s.fetch(t, mcp.Icon{Src: src}); err == nil {
			t.Errorf("%.60q: got %v, want an error", src, got)
		}
	}
	for src, want := range map[string]string{
		"data:image/svg+xml," + svg:                                      svg,
		"DATA:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg'/>": "<svg xmlns='http://www.w3.org/2000/svg'/>",
	} {
		if got, err := s.fetch(t, mcp.Icon{Src: src}); err != nil || string(got.Data) != want {
			t.Errorf("%s: got %v, %v, want %s", src, got, err, want)
		}
	}
}

// Requirement: ICON-05
func TestNoCredentialsAreSent(t *testing.T) {
	s := newSite(t)
	s.Page(iconURL, func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "id", Value: "1", Path: "/"})
		_, _ = w.Write(pngOf(1, 1))
	})
	f := s.fetcher()
	for range 2 { // the second time a cookie could be sent
		if _, err := icons.Fetch(t.Context(), f, server, mcp.Icon{Src: iconURL}); err != nil {
			t.Fatal(err)
		}
		for name := range s.LastHeader() {
			if !slices.Contains([]string{"Accept", "User-Agent", "Connection"}, name) {
				t.Errorf("the request has the header field %s: %q", name, s.LastHeader()[name])
			}
		}
		if got := s.LastHeader().Get("Accept"); !strings.Contains(got, "image/webp") {
			t.Errorf("Accept: got %q, want types of images", got)
		}
	}
	if _, err := icons.Fetch(t.Context(), f, server, mcp.Icon{Src: "https://ann:secret@mcp.example/icon"}); err == nil {
		t.Error("URL with a user: no error")
	}
}

// Requirement: ICON-05
func TestNoClientCertificateIsSent(t *testing.T) {
	certificates := -1
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		certificates = len(r.TLS.PeerCertificates)
		_, _ = w.Write(pngOf(1, 1))
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	f := oauth.NewFetcher(&oauth.FetcherOptions{TLSConfig: &tls.Config{RootCAs: roots, Certificates: s.TLS.Certificates,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &s.TLS.Certificates[0], nil
		}}})
	if _, err := icons.Fetch(t.Context(), f, s.URL+"/mcp", mcp.Icon{Src: s.URL + "/icon"}); err != nil {
		t.Fatal(err)
	}
	if certificates != 0 {
		t.Errorf("got %d client certificates, want none", certificates)
	}
}

// Requirement: ICON-06
func TestOnlyTheOriginOfTheServer(t *testing.T) {
	s := newSite(t)
	s.Default = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(pngOf(1, 1)) }
	s.At("intranet.example", "10.1.2.3")
	s.At("rebound.example", "127.0.0.1")
	s.At("metadata.example", "169.254.169.254")
	for _, test := range []struct {
		server, src string
		ok          bool
	}{
		{server, iconURL, true},
		{server, "https://MCP.example:443/icon?x=y", true},
		{"https://mcp.example:8443", "https://mcp.example:8443/icon", true},
		{"https://intranet.example/mcp", "https://intranet.example/icon", true},
		{"http://localhost:8080/mcp", "http://localhost:8080/icon", true},
		{"http://127.0.0.1:8080/mcp", "http://127.0.0.1:8080/icon", true},
		{server, "https://evil.example/icon", false},
		{server, "https://cdn.mcp.example/icon", false},
		{server, "https://mcp.example.evil.example/icon", false},
		{server, "https://mcp.example:8443/icon", false},
		{server, "https://127.0.0.1/icon", false},
		{server, "https://intranet.example/icon", false},
		{"https://metadata.example/mcp", "https://metadata.example/icon", false},
		{"http://mcp.example:8080/mcp", "http://mcp.example:8080/icon", false},
		{"http://rebound.example:8080/mcp", "http://rebound.example:8080/icon", false},
		{"http://localhost:8080/mcp", "http://localhost:8081/icon", false},
		{"http://localhost:8080/mcp", "https://localhost:8080/icon", false},
		{"", iconURL, false},
		{"%zz", iconURL, false},
		{"ftp://mcp.example", iconURL, false},
	} {
		got, err := icons.Fetch(t.Context(), s.fetcher(), test.server, mcp.Icon{Src: test.src})
		if (err == nil) != test.ok {
			t.Errorf("server %q, icon %q: got %v, %v; want success %v", test.server, test.src, got, err, test.ok)
		}
		if all := s.Requests(); len(all) > 0 && !test.ok {
			t.Errorf("server %q, icon %q: got requests %q, want none", test.server, test.src, all)
		}
	}
	image, err := icons.Fetch(t.Context(), nil, "", mcp.Icon{Src: dataURI("image/png", pngOf(1, 1))})
	if err != nil || image.MIMEType != "image/png" {
		t.Errorf("data URI of a server without a URL: got %v, %v, want an image", image, err)
	}
}

// Requirement: ICON-07
func TestContentDecidesAndDeclarationsMustAgree(t *testing.T) {
	s := newSite(t)
	html := "<html><svg xmlns='http://www.w3.org/2000/svg'/></html>"
	for _, test := range []struct {
		contentType, mimeType, data string
	}{
		{"image/jpeg", "", string(pngOf(1, 1))},
		{"image/png", "image/jpeg", string(pngOf(1, 1))},
		{"", "image/gif", string(pngOf(1, 1))},
		{"text/html", "image/png", string(pngOf(1, 1))},
		{"application/octet-stream", "", string(pngOf(1, 1))},
		{"image/png", "/", string(pngOf(1, 1))},
		{"image/png; =", "", string(pngOf(1, 1))},
		{"image/png", "", svg},
		{"image/svg+xml", "", string(pngOf(1, 1))},
		{"", "", ""},
		{"image/png", "", "\x89PNG"},
		{"image/png", "", "\x89PNG\r\n\x1a\nmore"},
		{"image/webp", "", "RIFF\x00\x00\x00\x00WEBP"},
		{"image/webp", "", "RIFF\x00\x00\x00\x00WEBPxxxx" + strings.Repeat("\x00", 20)},
		{"image/bmp", "", "BM" + strings.Repeat("\x00", 60)},
		{"image/svg+xml", "", html},
		{"text/html", "", html},
		{"image/svg+xml", "", "text" + svg},
		{"image/svg+xml", "", svg + svg},
		{"image/svg+xml", "", svg + "<html/>"},
		{"image/svg+xml", "", "<svg/>"},
		{"image/svg+xml", "", strings.TrimSuffix(svg, "</svg>")},
		{"image/svg+xml", "", "\xff" + svg},
		{"image/svg+xml", "", `<?xml version="1.0" encoding="utf-7"?>` + svg},
		{"image/svg+xml", "", `<!DOCTYPE svg [<!ENTITY a "aa">]>` + svg},
	} {
		s.serve(iconURL, test.contentType, []byte(test.data))
		if got, err := s.fetch(t, mcp.Icon{Src: iconURL, MIMEType: test.mimeType}); err == nil {
			t.Errorf("Content-Type %q, mimeType %q, %.60q: got %s, want an error", test.contentType, test.mimeType,
				test.data, got.MIMEType)
		}
		src := dataURI(test.contentType, []byte(test.data))
		if got, err := s.fetch(t, mcp.Icon{Src: src, MIMEType: test.mimeType}); err == nil {
			t.Errorf("%.60s: got %s, want an error", src, got.MIMEType)
		}
	}
}

// Requirement: ICON-08
func TestSizesAreLimited(t *testing.T) {
	s := newSite(t)
	for name, data := range map[string][]byte{
		"wide PNG": pngOf(4097, 1), "high PNG": pngOf(1, 4097), "wide JPEG": jpegOf(4097, 1), "high JPEG": jpegOf(1, 4097),
		"wide GIF": gifOf(4097, 1), "high GIF": gifOf(1, 4097), "wide WebP": webpOf("VP8 ", 4097, 1),
		"high WebP": webpOf("VP8 ", 1, 4097), "empty WebP": webpOf("VP8 ", 0, 1), "lossless WebP": webpOf("VP8L", 1, 4097),
		"extended WebP": webpOf("VP8X", 1<<24, 1), "high extended WebP": webpOf("VP8X", 1, 1<<16),
		"deep SVG": []byte(`<svg xmlns="http://www.w3.org/2000/svg">` + strings.Repeat("<g>", 300) +
			strings.Repeat("</g>", 300) + "</svg>"),
	} {
		s.serve(iconURL, "", data)
		if got, err := s.fetch(t, mcp.Icon{Src: iconURL}); err == nil {
			t.Errorf("%s: got %s, want an error", name, got.MIMEType)
		}
	}
	const limit = 1 << 20
	for size, ok := range map[int]bool{limit: true, limit + 1: false, 3 * limit: false} {
		data := append(pngOf(1, 1), make([]byte, size)...)[:size]
		s.serve(iconURL, "image/png", data)
		for _, src := range []string{iconURL, dataURI("image/png", data)} {
			if _, err := s.fetch(t, mcp.Icon{Src: src}); (err == nil) != ok {
				t.Errorf("%.20s with %d bytes: got error %v, want success %v", src, size, err, ok)
			}
		}
	}
	start := append(pngOf(1, 1), make([]byte, 64<<10)...)
	s.Page(iconURL, func(w http.ResponseWriter, r *http.Request) { // a body that does not end
		for r.Context().Err() == nil {
			if _, err := w.Write(start); err != nil {
				return
			}
		}
	})
	if _, err := s.fetch(t, mcp.Icon{Src: iconURL}); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("endless body: got error %v, want one for the size", err)
	}
}
