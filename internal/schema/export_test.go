package schema

// StepsLeft validates instance and returns the steps left in the budget.
func StepsLeft(s *Schema, instance []byte) int {
	e := evaluation{doc: instance, steps: MaxSteps, dynamic: s.dynamic}
	if _, ok := e.value(s.root, skipSpace(instance, 0), nil); !ok {
		_ = e.explain(s.root, skipSpace(instance, 0))
	}
	return e.steps
}
