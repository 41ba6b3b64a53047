// Package patchbay has the server and the client of the migration guides.
package patchbay

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/mcp"
)

type place struct {
	City string `json:"city" jsonschema:"name of a city"`
	Days int    `json:"days" jsonschema:"number of days,minimum=1,maximum=7,default=1"`
}

type forecast struct {
	City    string `json:"city"`
	Degrees []int  `json:"degrees" jsonschema:"one for each day"`
}

func getForecast(ctx context.Context, in place) (forecast, error) {
	f := forecast{City: in.City}
	for day := range in.Days {
		f.Degrees = append(f.Degrees, 20-day)
		mcp.Progress(ctx, float64(day+1), float64(in.Days), "computing")
	}
	return f, nil
}

func book(ctx context.Context, in place) (string, error) {
	nights, err := mcp.Ask[int](ctx, "nights", "How many nights in "+in.City+"?", nil)
	if errors.Is(err, mcp.ErrDeclined) {
		return "Nothing was booked.", nil
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d nights in %s are booked.", nights, in.City), nil
}

type city struct {
	Name string `json:"name"`
}

func describe(_ context.Context, in city) (string, error) { return in.Name + " is a city.", nil }

func plan(_ context.Context, in city) (string, error) { return "Plan a trip to " + in.Name + ".", nil }

// NewServer returns the server.
func NewServer() *mcp.Server {
	s := mcp.NewServer("travel", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "forecast", Description: "Forecast the weather."}, getForecast)
	mcp.AddTool(s, &mcp.Tool{Name: "book", Description: "Book a hotel."}, book)
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "city:///{name}", Name: "city"}, describe)
	mcp.AddPrompt(s, &mcp.Prompt{Name: "plan", Description: "Plan a trip."}, plan)
	return s
}
