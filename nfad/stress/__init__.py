"""What a model bears before it is deployed: its own normals under changed light, camera and pose, without a defect."""
