package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// The function Elicit returns what the user did: accepted and filled in the form, declined, or dismissed the question. An
// error is for a user who could not be asked, and fails the call.
func ExampleClientOptions_elicit() {
	s := mcp.NewServer("rockets", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "launch"}, func(ctx context.Context, _ struct{}) (string, error) {
		ok, err := mcp.Ask[bool](ctx, "sure", "Really launch?", nil)
		switch {
		case errors.Is(err, mcp.ErrDeclined):
			return "the user has declined", nil
		case errors.Is(err, mcp.ErrDismissed):
			return "the user has dismissed the question", nil
		case err != nil:
			return "", fmt.Errorf("ask: %w", err) // the question is open, or the client cannot ask
		}
		return fmt.Sprintf("the user has answered %t", ok), nil
	})

	var result *mcp.ElicitResult // of the user
	var failure error
	ctx := context.Background()
	c, err := mcp.Connect(ctx, mcp.InMemory(s), &mcp.ClientOptions{
		Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			// The form of an Ask[bool] has one field, value; in general p.RequestedSchema describes the fields.
			return result, failure
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for _, result = range []*mcp.ElicitResult{
		{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"value":true}`)},
		{Action: mcp.ElicitDecline},
		{Action: mcp.ElicitCancel},
	} {
		fmt.Println(mcp.CallTool[string](ctx, c, "launch", nil))
	}
	failure = errors.New("the screen is locked")
	_, err = mcp.CallTool[string](ctx, c, "launch", nil)
	fmt.Println(errors.Is(err, failure), err)
	// Output:
	// the user has answered true <nil>
	// the user has declined <nil>
	// the user has dismissed the question <nil>
	// true mcp: tools/call: input request elicitation/create: the screen is locked
}

// A tool that keeps data per user. Issuer and Subject identify the user; Principal.Key would also depend on the
// application. Authorization middleware, such as oauth.Require, sets the caller. Here it is set by hand.
func ExamplePrincipalFrom() {
	type user struct{ issuer, subject string }
	visits := map[user]int{}
	s := mcp.NewServer("guestbook", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "visit"}, func(ctx context.Context, _ struct{}) (string, error) {
		caller := mcp.PrincipalFrom(ctx)
		if caller == nil {
			return "", errors.New("a login is required")
		}
		owner := user{caller.Issuer, caller.Subject}
		visits[owner]++
		return fmt.Sprintf("visit %d of %s", visits[owner], caller.Subject), nil
	})

	ctx := context.Background()
	c, err := mcp.Connect(ctx, mcp.InMemory(s), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for _, app := range []string{"editor", "terminal"} {
		ann := mcp.WithPrincipal(ctx, &mcp.Principal{Issuer: "https://auth.example.com", Subject: "ann", ClientID: app})
		fmt.Println(mcp.CallTool[string](ann, c, "visit", nil))
	}
	_, err = mcp.CallTool[string](ctx, c, "visit", nil)
	fmt.Println(err)
	// Output:
	// visit 1 of ann <nil>
	// visit 2 of ann <nil>
	// tool "visit" failed: a login is required
}
