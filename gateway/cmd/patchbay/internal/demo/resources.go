package demo

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/host/state"
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
func addCounter(s *mcp.Server, count *counter) {
	mcp.AddResource(s, &mcp.Resource{
		URI: counterURI, Name: "counter", Title: "Counter", MIMEType: "text/plain",
		Description: "A number that the tool increment raises. Subscribe to it.",
	}, func(ctx context.Context, _ string) (string, error) {
		n, _, err := count.read(ctx)
		return strconv.FormatInt(n, 10), err
	})
	mcp.AddTool(s, &mcp.Tool{
		Name: "increment", Title: "Increment", Description: "Raise demo://counter by one.",
		Annotations: additive(),
	}, func(ctx context.Context, _ struct{}) (int64, error) {
		_, n, err := count.change(ctx, func(n int64) int64 { return n + 1 })
		if err == nil {
			s.ResourceUpdated(counterURI) // notifies subscribers
		}
		return n, err
	})
}

// A counter is a number in a store, which several processes may share.
type counter struct{ store state.Store }

// The entry of the number.
const counterKind, counterKey = "demo", "counter"

func (c *counter) read(ctx context.Context) (n int64, version uint64, err error) {
	value, version, err := c.store.Get(ctx, counterKind, counterKey)
	if err == nil && value != nil {
		n, err = strconv.ParseInt(string(value), 10, 64)
	}
	return n, version, err
}

// change replaces the number by the result of next, until no other process was faster.
func (c *counter) change(ctx context.Context, next func(int64) int64) (before, after int64, err error) {
	for {
		before, version, err := c.read(ctx)
		if err != nil {
			return 0, 0, err
		}
		after = next(before)
		err = c.store.CompareAndSet(ctx, counterKind, counterKey, version, strconv.AppendInt(nil, after, 10))
		if !errors.Is(err, state.ErrConflict) {
			return before, after, err
		}
	}
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
