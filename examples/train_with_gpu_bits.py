"""A small network learns with the products of an H100 and with those of an A100: when do the weights part? Needs torch."""

import warnings

import torch

import fastmma.torch

warnings.simplefilter("ignore", fastmma.torch.AssumedWarning)


def trained(gpu: str, steps: int = 20) -> list[torch.Tensor]:
    """The losses and the first weight after each step."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8)).to(torch.bfloat16)
    x, y = torch.randn(1024, 512, dtype=torch.bfloat16), torch.randint(8, (1024,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = []
    with fastmma.torch.emulate(gpu, functions="torch"):
        for _ in range(steps):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x).float(), y)
            loss.backward()
            optimizer.step()
            kept.append(torch.cat([loss.detach()[None], model[0].weight.detach().float().flatten()]))
    return kept


def main() -> None:
    hopper, ampere = trained("H100"), trained("A100")
    for step in (0, 1, 4, 19):
        differ = (hopper[step][1:] != ampere[step][1:]).float().mean().item()
        print(f"after step {step + 1:2}: loss {hopper[step][0]:.4f} and {ampere[step][0]:.4f}, {differ:6.2%} of the weights differ")


if __name__ == "__main__":
    main()
