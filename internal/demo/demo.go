// Package demo is the server that `patchbay serve` offers: one of everything, to try a client on.
package demo

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

//go:embed guide
var guide embed.FS

//go:embed dice.html
var diceHTML string

// ToolReset is the tool of a demo with [Options.Scopes] that not every user may call.
const ToolReset = "reset_counter"

// Options configures a [Demo]. The zero value, or nil, is a demo for everybody that forgets all with its process.
type Options struct {
	// Scopes guards the tools of a demo for users who have logged in, which has [ToolReset] as well. Default: nothing does.
	Scopes mcp.Middleware
	// Tasks keeps the tasks. Default: memory.
	Tasks tasks.Store
	// Logger takes what goes wrong inside. Default: slog.Default().
	Logger *slog.Logger
}

// A Demo is the demo server.
type Demo struct {
	// Server is the server.
	Server *mcp.Server
	// Tasks has the tasks of the server; whoever makes the demo closes it in the end.
	Tasks *tasks.Server
}

// New returns a demo server of the given version.
func New(version string, opts *Options) *Demo {
	if opts == nil {
		opts = &Options{}
	}
	options := mcp.ServerOptions{
		Title:        "Patchbay demo",
		Instructions: "A playground. Call any tool; nothing here has an effect outside this process.",
		Logger:       opts.Logger,
	}
	if opts.Scopes != nil {
		options.Middleware = []mcp.Middleware{opts.Scopes}
	}
	s, counter := mcp.NewServer("patchbay-demo", version, &options), new(atomic.Int64)
	d := &Demo{s, tasks.NewServer(s, &tasks.Options{Store: opts.Tasks, Logger: opts.Logger})}
	addTools(s)
	addQuestions(s)
	addLong(d.Tasks)
	addApp(s)
	addSkills(s)
	addResources(s, counter)
	addPrompts(s)
	if opts.Scopes != nil {
		addReset(s, counter)
	}
	return d
}

func addReset(s *mcp.Server, counter *atomic.Int64) {
	mcp.AddTool(s, &mcp.Tool{Name: ToolReset, Title: "Reset the counter",
		Description: "Set demo://counter to zero, for clients whom their user allows that."},
		func(context.Context, struct{}) (int64, error) {
			before := counter.Swap(0)
			s.ResourceUpdated(counterURI)
			return before, nil
		})
}

type addIn struct {
	A int `json:"a" jsonschema:"first addend"`
	B int `json:"b" jsonschema:"second addend"`
}

type diceIn struct {
	Sides int `json:"sides,omitempty" jsonschema:"how many sides a die has,minimum=2,maximum=100,default=6"`
	Count int `json:"count,omitempty" jsonschema:"how many dice to roll,minimum=1,maximum=20,default=1"`
}

type diceOut struct {
	Rolls []int `json:"rolls"`
	Total int   `json:"total"`
}

type countIn struct {
	Steps int `json:"steps,omitempty" jsonschema:"how many steps to take,minimum=1,maximum=50,default=5"`
}

type whoOut struct {
	Revision string `json:"revision" jsonschema:"the protocol revision of this call"`
	Client   string `json:"client" jsonschema:"what the client calls itself"`
	User     string `json:"user,omitempty" jsonschema:"who has logged in"`
	// ClientID and Scopes are of the token with which the user's client came.
	ClientID string   `json:"clientId,omitempty" jsonschema:"the client as the authorization server knows it"`
	Scopes   []string `json:"scopes,omitempty" jsonschema:"what the user allows the client"`
}

func addTools(s *mcp.Server) {
	yes := true
	readOnly := &mcp.ToolAnnotations{ReadOnly: &yes}
	mcp.AddTool(s, &mcp.Tool{Name: "add", Title: "Add", Description: "Add two integers.", Annotations: readOnly},
		func(_ context.Context, in addIn) (int, error) { return in.A + in.B, nil })
	mcp.AddTool(s, &mcp.Tool{Name: "count", Title: "Count",
		Description: "Count slowly, with progress and log messages on the way."}, count)
	mcp.AddTool(s, &mcp.Tool{Name: "who_am_i", Title: "Who am I",
		Description: "Say which revision the client speaks, what it calls itself, and who has logged in.", Annotations: readOnly}, whoAmI)
}

// addApp adds a tool whose result hosts show in a view: a page that can roll again by itself.
func addApp(s *mcp.Server) {
	const table = "ui://demo/dice"
	views := apps.New(s)
	views.Add(&apps.View{URI: table, Name: "dice", Title: "Dice", Description: "Shows the dice, and rolls them again."}, diceHTML)
	mcp.AddTool(s, views.WithUI(&mcp.Tool{Name: "roll_dice", Title: "Roll dice", Description: "Roll some dice."}, &apps.ToolUI{View: table}), rollDice)
}

func rollDice(_ context.Context, in diceIn) (diceOut, error) {
	var out diceOut
	for range in.Count {
		roll := rand.IntN(in.Sides) + 1
		out.Rolls = append(out.Rolls, roll)
		out.Total += roll
	}
	return out, nil
}

func whoAmI(ctx context.Context, _ struct{}) (whoOut, error) {
	req := mcp.RequestFrom(ctx)
	who := whoOut{Revision: req.Revision(), Client: req.Client().Name}
	if user := req.Principal; user != nil {
		who.User, who.ClientID, who.Scopes = user.Subject, user.ClientID, user.Scopes
	}
	return who, nil
}

// count takes a tenth of a second per step.
func count(ctx context.Context, in countIn) (string, error) {
	const step = 100 * time.Millisecond
	for i := range in.Steps {
		mcp.Logger(ctx).Info("counting", "step", i+1)
		mcp.Progress(ctx, float64(i+1), float64(in.Steps), "step "+strconv.Itoa(i+1))
		select {
		case <-time.After(step):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	return fmt.Sprintf("counted to %d", in.Steps), nil
}

type greetIn struct {
	Name string `json:"name,omitempty" jsonschema:"whom to greet; the user is asked when it is missing"`
}

type profile struct {
	Name string `json:"name" jsonschema:"your name,minLength=1"`
}

type deployIn struct {
	Environment string `json:"environment" jsonschema:"where to deploy,enum=staging|production"`
}

type deployOut struct {
	Release     string `json:"release"`
	Environment string `json:"environment"`
}

type summarizeIn struct {
	Text string `json:"text" jsonschema:"what to summarize,maxLength=10000"`
}

// addQuestions adds the tools that ask the client.
func addQuestions(s *mcp.Server) {
	mcp.AddTool(s, &mcp.Tool{Name: "greet", Title: "Greet", Description: "Greet somebody; asks for the name."}, greet)
	mcp.AddTool(s, &mcp.Tool{Name: "deploy", Title: "Deploy",
		Description: "Pretend to deploy, after the user has agreed."}, deploy)
	mcp.AddTool(s, &mcp.Tool{Name: "summarize", Title: "Summarize",
		Description: "Let the client's model summarize a text."}, summarize)
}

func greet(ctx context.Context, in greetIn) (string, error) {
	if in.Name == "" {
		p, err := mcp.Ask[profile](ctx, "profile", "What is your name?", nil)
		if errors.Is(err, mcp.ErrDeclined) {
			return "Hello, whoever you are!", nil
		}
		if err != nil {
			return "", err
		}
		in.Name = p.Name
	}
	return "Hello, " + in.Name + "!", nil
}

func deploy(ctx context.Context, in deployIn) (deployOut, error) {
	release, err := mcp.Once(ctx, "release", func(context.Context) (string, error) {
		return fmt.Sprintf("r%04d", rand.IntN(10_000)), nil
	})
	if err != nil {
		return deployOut{}, err
	}
	ok, err := mcp.Ask[bool](ctx, "confirm", fmt.Sprintf("Deploy %s to %s?", release, in.Environment), nil)
	if err != nil {
		return deployOut{}, err
	}
	if !ok {
		return deployOut{}, errors.New("the user did not agree")
	}
	return deployOut{Release: release, Environment: in.Environment}, nil
}

func summarize(ctx context.Context, in summarizeIn) (string, error) {
	res, err := mcp.Sample(ctx, "summary", &mcp.SampleParams{
		SystemPrompt: "Summarize in one sentence.",
		Messages:     []mcp.SampleMessage{{Role: mcp.RoleUser, Content: []mcp.Content{mcp.Text(in.Text)}}},
		MaxTokens:    200,
	})
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			b.WriteString(text.Text)
		}
	}
	return b.String(), nil
}

// counterURI is a resource that the tool "increment" changes, to try subscriptions on.
const counterURI = "demo://counter"

type cityVars struct {
	Country string `json:"country"`
	City    string `json:"city"`
}

// cities are what the city template knows.
var cities = map[string][]string{
	"austria": {"graz", "linz", "vienna"},
	"japan":   {"kyoto", "osaka", "tokyo"},
	"kenya":   {"kisumu", "mombasa", "nairobi"},
}

func addResources(s *mcp.Server, counter *atomic.Int64) {
	files, err := fs.Sub(guide, "guide")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	mcp.AddFS(s, "demo://guide/", files)
	mcp.AddResource(s, &mcp.Resource{URI: counterURI, Name: "counter", Title: "Counter", MIMEType: "text/plain",
		Description: "A number that the tool increment raises. Subscribe to it."},
		func(context.Context, string) (string, error) { return strconv.FormatInt(counter.Load(), 10), nil })
	mcp.AddTool(s, &mcp.Tool{Name: "increment", Title: "Increment", Description: "Raise demo://counter by one."},
		func(context.Context, struct{}) (int64, error) {
			n := counter.Add(1)
			s.ResourceUpdated(counterURI)
			return n, nil
		})
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "demo://cities/{country}/{city}", Name: "city",
		Title: "City", Description: "A line about a city.", MIMEType: "text/plain",
		Complete: map[string]mcp.CompleteFunc{"country": completeCountry, "city": completeCity}},
		func(_ context.Context, v cityVars) (string, error) {
			for _, city := range cities[v.Country] {
				if city == v.City {
					return fmt.Sprintf("%s is a city in %s.", v.City, v.Country), nil
				}
			}
			return "", fs.ErrNotExist
		})
}

func completeCountry(_ context.Context, value string, _ map[string]string) ([]string, error) {
	var found []string
	for _, country := range []string{"austria", "japan", "kenya"} {
		if strings.HasPrefix(country, value) {
			found = append(found, country)
		}
	}
	return found, nil
}

func completeCity(_ context.Context, value string, args map[string]string) ([]string, error) {
	var found []string
	for _, city := range cities[args["country"]] {
		if strings.HasPrefix(city, value) {
			found = append(found, city)
		}
	}
	return found, nil
}

type reviewIn struct {
	Language string `json:"language" jsonschema:"the language of the code,enum=go|python|rust|typescript"`
	Code     string `json:"code" jsonschema:"the code to review"`
}

func addPrompts(s *mcp.Server) {
	mcp.AddPrompt(s, &mcp.Prompt{Name: "review", Title: "Review code", Description: "Ask for a review of some code."},
		func(_ context.Context, in reviewIn) (string, error) {
			return fmt.Sprintf("Review this %s code. Name the worst problem first.\n\n%s", in.Language, in.Code), nil
		})
}
