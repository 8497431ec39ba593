"""How sure a result is: approximations of posteriors that mean field takes for too narrow."""
