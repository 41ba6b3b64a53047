package icons_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/patchbay-mcp/patchbay/ext/icons"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func ExampleFetch() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/svg+xml")
		_, _ = w.Write([]byte(`<svg xmlns="http://www.w3.org/2000/svg"><circle r="1"/></svg>`))
	}))
	defer server.Close()

	tool := &mcp.Tool{Name: "draw", Icons: []mcp.Icon{
		{Src: server.URL + "/draw.svg", MIMEType: "image/svg+xml", Sizes: []string{"any"}},
		{Src: "https://tracker.example/draw.png"},
	}}
	for _, icon := range tool.Icons {
		image, err := icons.Fetch(context.Background(), nil, server.URL+"/mcp", icon)
		if err != nil {
			fmt.Println("refused")
			continue
		}
		fmt.Println(image.MIMEType, image.NotInline)
	}
	// Output:
	// image/svg+xml true
	// refused
}
