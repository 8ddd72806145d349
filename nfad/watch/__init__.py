"""A camera's folder, judged image by image: nothing lost, nothing twice, whatever is unplugged when."""
