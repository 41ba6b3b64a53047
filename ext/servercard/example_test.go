package servercard_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/patchbay-mcp/patchbay/ext/servercard"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/visible"
)

func ExampleFind() {
	ctx := context.Background()
	site := httptest.NewUnstartedServer(nil)
	server := mcp.NewServer("weather", "1.0.0", &mcp.ServerOptions{Description: "Forecasts for every place"})
	card, err := servercard.Describe(ctx, server, servercard.Card{
		Name:    "com.example/weather",
		Remotes: []servercard.Remote{{URL: "http://" + site.Listener.Addr().String() + "/mcp"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	site.Config.Handler = servercard.Serve(card)(http.NotFoundHandler())
	site.Start()
	defer site.Close()

	claims, err := servercard.Find(ctx, nil, site.URL)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range claims {
		fmt.Println(c.Card.Name, c.Card.Version, visible.EscapeAll(c.Card.Description))
		fmt.Println("claims to be at the site:", c.Card.Endpoints()[0] == site.URL+"/mcp")
	}
	// Output:
	// com.example/weather 1.0.0 Forecasts for every place
	// claims to be at the site: true
}
