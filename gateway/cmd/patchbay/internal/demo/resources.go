package demo

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/mcp"
)

//go:embed guide
var guide embed.FS

func addResources(s *mcp.Server) {
	files, err := fs.Sub(guide, "guide")
	mustEmbed(err)
	mcp.AddFS(s, "demo://guide/", files)

	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{
		URITemplate: "demo://cities/{country}/{city}", Name: "city", Title: "City",
		Description: "A sentence about a city. Its variables can be completed.", MIMEType: "text/plain",
		Complete: map[string]mcp.CompleteFunc{"country": completeCountry, "city": completeCity},
	}, readCity)
}

const counterURI = "demo://counter"

// addCounter adds a resource to subscribe to, and the tool that changes it.
func addCounter(s *mcp.Server, counter *atomic.Int64) {
	mcp.AddResource(s, &mcp.Resource{
		URI: counterURI, Name: "counter", Title: "Counter", MIMEType: "text/plain",
		Description: "A number that the tool increment raises. Subscribe to it.",
	}, func(context.Context, string) (string, error) {
		return strconv.FormatInt(counter.Load(), 10), nil
	})
	mcp.AddTool(s, &mcp.Tool{
		Name: "increment", Title: "Increment", Description: "Raise demo://counter by one.",
		Annotations: additive(),
	}, func(context.Context, struct{}) (int64, error) {
		n := counter.Add(1)
		s.ResourceUpdated(counterURI) // notifies subscribers
		return n, nil
	})
}

// cities maps countries to their cities.
var cities = map[string][]string{
	"austria": {"graz", "linz", "vienna"},
	"japan":   {"kyoto", "osaka", "tokyo"},
	"kenya":   {"kisumu", "mombasa", "nairobi"},
}

type cityVars struct {
	Country string `json:"country"`
	City    string `json:"city"`
}

func readCity(_ context.Context, v cityVars) (string, error) {
	if !slices.Contains(cities[v.Country], v.City) {
		return "", fs.ErrNotExist // sent as "resource not found"
	}
	return fmt.Sprintf("%s is a city in %s.", v.City, v.Country), nil
}

func completeCountry(_ context.Context, value string, _ map[string]string) ([]string, error) {
	return withPrefix(slices.Sorted(maps.Keys(cities)), value), nil
}

func completeCity(_ context.Context, value string, args map[string]string) ([]string, error) {
	return withPrefix(cities[args["country"]], value), nil
}

func withPrefix(names []string, prefix string) (found []string) {
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			found = append(found, name)
		}
	}
	return found
}
