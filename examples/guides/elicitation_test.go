package guides

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/mcp"
)

type guests struct {
	Number int    `json:"number" jsonschema:"how many people,minimum=1,maximum=12"`
	Area   string `json:"area,omitempty" jsonschema:"where to sit,enum=inside|outside,default=inside"`
}

// reserve asks twice. It runs three times: until the first question, until the second, and to its end.
func reserve(ctx context.Context, _ struct{}) (string, error) {
	number, err := mcp.Once(ctx, "number", newReservation) // a side effect before a question
	if err != nil {
		return "", err
	}
	table, err := mcp.Ask[guests](ctx, "guests", "For how many people?", nil)
	if err != nil {
		return "", err
	}
	sure, err := mcp.Ask[bool](ctx, "sure", fmt.Sprintf("Reserve a table for %d %s?", table.Number, table.Area), nil)
	if errors.Is(err, mcp.ErrDeclined) || err == nil && !sure {
		return "Nothing was reserved.", nil
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("Reservation %d: %d people, %s.", number, table.Number, table.Area), nil
}

func newReservation(context.Context) (int, error) {
	fmt.Println("(new reservation)")
	return 41, nil
}

func Example_elicitation() {
	ctx := context.Background()
	s := mcp.NewServer("restaurant", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "reserve", Description: "Reserve a table."}, reserve)

	c := connect(s, &mcp.ClientOptions{
		Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			fmt.Println(p.Message)
			answer := `{"value":true}` // the form of Ask[bool] has one field, value
			if p.Message == "For how many people?" {
				answer = `{"number":4}`
			}
			return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(answer)}, nil
		},
	})
	defer c.Close()
	fmt.Println(mcp.CallTool[string](ctx, c, "reserve", nil))
	// Output:
	// (new reservation)
	// For how many people?
	// Reserve a table for 4 inside?
	// Reservation 41: 4 people, inside. <nil>
}

// order asks two questions in one round trip.
func order(ctx context.Context, _ struct{}) (string, error) {
	var dish string
	var vegan bool
	err := mcp.AskAll(ctx,
		mcp.FormQuestion("dish", "Which dish?", &dish, &mcp.AskOptions{Default: "soup"}),
		mcp.FormQuestion("vegan", "Vegan?", &vegan, nil),
	)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return "Ordered the dish of the day.", nil // this client cannot ask its user
	case err != nil:
		return "", err
	}
	return fmt.Sprintf("Ordered %s, vegan: %t.", dish, vegan), nil
}

func Example_askAll() {
	ctx := context.Background()
	s := mcp.NewServer("restaurant", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "order", Description: "Order a dish."}, order)

	accept := func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		if p.Message == "Vegan?" {
			return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"value":true}`)}, nil
		}
		return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{}`)}, nil // the default
	}
	for _, opts := range []*mcp.ClientOptions{{Elicit: accept}, nil} {
		c := connect(s, opts)
		fmt.Println(mcp.CallTool[string](ctx, c, "order", nil))
		c.Close()
	}
	// Output:
	// Ordered soup, vegan: true. <nil>
	// Ordered the dish of the day. <nil>
}

// pay sends the user to a page of the server: card numbers must not pass through the client.
func (b *bank) pay(ctx context.Context, _ struct{}) (string, error) {
	if err := mcp.AskURL(ctx, "card", "https://pay.example.com/orders/41", "Pay for order 41."); err != nil {
		return "", err
	}
	if !b.isPaid(ctx, 41) { // the user has agreed to visit the page, no more
		return "", errors.New("order 41 is not paid yet")
	}
	return "Order 41 is paid.", nil
}

type bank struct{}

func (*bank) isPaid(context.Context, int) bool { return true }

func Example_askURL() {
	ctx := context.Background()
	s := mcp.NewServer("restaurant", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "pay", Description: "Pay for the order."}, new(bank).pay)

	c := connect(s, &mcp.ClientOptions{
		ElicitURL: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			fmt.Println(p.Message, p.URL) // show both, ask for consent, and open a browser
			return &mcp.ElicitResult{Action: mcp.ElicitAccept}, nil
		},
	})
	defer c.Close()
	fmt.Println(mcp.CallTool[string](ctx, c, "pay", nil))
	// Output:
	// Pay for order 41. https://pay.example.com/orders/41
	// Order 41 is paid. <nil>
}

type article struct {
	Text string `json:"text" jsonschema:"text to summarize"`
}

func summarize(ctx context.Context, in article) (string, error) {
	res, err := mcp.Sample(ctx, "summary", &mcp.CreateMessageParams{
		SystemPrompt: "Summarize in one sentence.",
		Messages:     []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text(in.Text)}}},
		MaxTokens:    200,
	})
	if err != nil {
		return "", err
	}
	return res.Text(), nil
}

func Example_sampling() {
	ctx := context.Background()
	s := mcp.NewServer("press", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "summarize", Description: "Summarize a text."}, summarize)

	c := connect(s, &mcp.ClientOptions{
		Sample: func(_ context.Context, p *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
			// Show the request to the user, and call the model of the application.
			return &mcp.CreateMessageResult{
				Role: mcp.RoleAssistant, Model: "example-1", StopReason: "endTurn",
				Content: []mcp.ContentBlock{mcp.Text("It is short.")},
			}, nil
		},
	})
	defer c.Close()
	fmt.Println(mcp.CallTool[string](ctx, c, "summarize", article{"A long text."}))
	// Output: It is short. <nil>
}
