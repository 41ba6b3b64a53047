// Command app is an MCP server on stdio with an MCP Apps view: a clock that the host shows in the
// conversation.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"log"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/mcp"
)

//go:embed clock.html
var clockHTML string

const face = "ui://clock/face"

type place struct {
	Zone string `json:"zone" jsonschema:"an IANA time zone, such as Europe/Zurich,default=UTC"`
}

type moment struct {
	Zone string `json:"zone"`
	Time string `json:"time"`
}

func now(_ context.Context, in place) (moment, error) {
	zone, err := time.LoadLocation(in.Zone)
	if err != nil {
		return moment{}, fmt.Errorf("unknown time zone %q", in.Zone)
	}
	return moment{in.Zone, time.Now().In(zone).Format("15:04:05")}, nil
}

func main() {
	s := mcp.NewServer("clock", "1.0.0", nil)
	views := apps.New(s)
	views.Add(&apps.View{URI: face, Name: "clock", Title: "Clock"}, clockHTML)

	// The model calls time, and the host shows the result in the view. The view calls tick, which
	// the model does not see.
	mcp.AddTool(s, views.WithUI(&mcp.Tool{Name: "time", Description: "Tell the time somewhere."},
		&apps.ToolUI{View: face}), now)
	mcp.AddTool(s, views.WithUI(&mcp.Tool{Name: "tick", Description: "Tell the time to the view."},
		&apps.ToolUI{View: face, Visibility: []apps.Visibility{apps.VisibilityApp}}), now)

	if err := s.Run(context.Background(), mcp.Stdio()); err != nil {
		log.Fatal(err)
	}
}
