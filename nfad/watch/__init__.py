"""A folder that a camera writes into, judged part by part: nothing lost, nothing twice, whatever is unplugged when."""
