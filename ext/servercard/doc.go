// Package servercard serves and reads MCP server cards: public documents that say what a server is
// called and where it is, before anybody connects to it.
//
// A card is found in a catalogue at the site of its publisher, or beside the endpoint of the server.
// [Describe] completes a card with the name, version and revisions that the server reports, and
// [Serve] serves the card and its catalogue:
//
//	card, err := servercard.Describe(ctx, server, servercard.Card{
//		Name:        "com.example/weather",
//		Description: "Forecasts for every place",
//		Remotes:     []servercard.Remote{{URL: "https://mcp.example.com/mcp"}},
//	})
//	if err != nil {
//		return err
//	}
//	err = mcphttp.Serve(ctx, listener, "/mcp", handler, servercard.Serve(card))
//
// Everybody can read a card, also in front of a server that requires authorization. So a card
// never contains tools, resources, prompts, instructions or capabilities, and no value depends on a
// caller.
//
// A client reads the cards of a site with [Find]:
//
//	claims, err := servercard.Find(ctx, nil, "https://example.com")
//
// # Claims
//
// A card is unverified text of whoever controls the site. A program must not decide about security
// or access by it, must ask the user before it connects to an endpoint of a card as it would for a
// URL from any other stranger, and must prefer the values that the connected server reports. The
// texts of a card may contain control characters: package visible escapes them for display.
//
// Stage: experimental. The extension was accepted as SEP-2127, and its format may still change.
//
// Spec: docs/discovery.md and schema.ts of modelcontextprotocol/experimental-ext-server-card; AI
// Catalog, for the catalogue.
package servercard
